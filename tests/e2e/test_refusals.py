"""What does not exist is refused, by flag, by field and by URL, so that nobody believes it is on.

The classes are those of docs/integrity.md, whose bugs need the feature that is missing.
"""

import subprocess

import pytest

TRANSFER = [
    ("--disaggregation-mode", "decode"),
    ("--disaggregation-transfer-backend", "mooncake"),
    ("--disaggregation-bootstrap-port", "8998"),
    ("--disaggregation-ib-device", "mlx5_0"),
    ("--kv-transfer-config", '{"kv_connector":"NixlConnector"}'),
]
TIERS = [
    ("--enable-hierarchical-cache",),
    ("--hicache-ratio", "2"),
    ("--hicache-storage-backend", "file"),
    ("--enable-lmcache",),
    ("--kv-offloading-size", "4"),
    ("--cpu-offload-gb", "4"),
    ("--swap-space", "4"),
]
SPECULATION = [
    ("--speculative-algorithm", "EAGLE"),
    ("--speculative-num-steps", "3"),
    ("--speculative-config", "{}"),
]
ADAPTERS = [("--enable-lora",), ("--lora-paths", "a=b"), ("--lora-modules", "a=b", "c=d")]
MOVING_POOLS = [("--enable-memory-saver",), ("--enable-sleep-mode",)]
RANKS = [("--dp-size", "2"), ("--pp-size", "2"), ("--nnodes", "2"), ("--dist-init-addr", "a:1")]


def refused(binary, model_path, flags, said):
    command = [binary, "serve", "--model-path", model_path, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, (flags, ended.stdout, ended.stderr)
    assert f"{flags[0]}: " in ended.stderr and said in ended.stderr, (flags, ended.stderr)


@pytest.mark.parametrize("flags", TRANSFER, ids=lambda flags: flags[0])
def test_transfer_is_refused(binary, model_path, flags):
    """Classes 17 to 21 and 23."""
    refused(binary, model_path, flags, "transfer between them, are not built")


@pytest.mark.parametrize("flags", TIERS, ids=lambda flags: flags[0])
def test_tiers_below_the_device_are_refused(binary, model_path, flags):
    """Classes 24 to 28."""
    refused(binary, model_path, flags, "no tier below it is built")


@pytest.mark.parametrize("flags", SPECULATION, ids=lambda flags: flags[0])
def test_speculation_is_refused(binary, model_path, flags):
    """Class 35."""
    refused(binary, model_path, flags, "speculative decoding is not built")


@pytest.mark.parametrize("flags", ADAPTERS, ids=lambda flags: flags[0])
def test_adapters_are_refused(binary, model_path, flags):
    """Class 30, of adapters."""
    refused(binary, model_path, flags, "adapters are not built")


@pytest.mark.parametrize("flags", MOVING_POOLS, ids=lambda flags: flags[0])
def test_pools_that_move_are_refused(binary, model_path, flags):
    """Class 22."""
    refused(binary, model_path, flags, "pools that move are not built")


@pytest.mark.parametrize("flags", RANKS, ids=lambda flags: flags[0])
def test_several_ranks_are_refused(binary, model_path, flags):
    """The check C, and faults of ranks."""
    refused(binary, model_path, flags, "several ranks are not built")


FIELDS = {
    "kv_transfer_params": {"do_remote_prefill": True},
    "bootstrap_host": "10.0.0.1",
    "bootstrap_room": 7,
    "remote_block_ids": [1],
    "cache_salt": "mine",
    "extra_key": "mine",
    "session_params": {"id": "a"},
    "lora_path": "a",
    "image_data": "x",
    "input_embeds": [[0.0]],
}


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_what_is_missing_are_refused(server, field):
    """Classes 17 to 21 (rooms and handles from outside), 28, 30 (salts and adapters), 31."""
    for path, prompt in (
        ("/v1/completions", {"prompt": [1, 2]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ):
        body = {"model": server.model, "max_tokens": 1, **prompt, field: FIELDS[field]}
        status, answer = server.post(path, body)
        assert status == 400, (field, answer)
        assert answer["error"]["code"] in ("unknown_parameter", "unsupported_parameter")
        assert answer["error"]["param"] == field


@pytest.mark.parametrize(
    "path",
    [
        "/update_weights_from_disk",
        "/load_lora_adapter",
        "/release_memory_occupation",
        "/open_session",
        "/slots/0?action=restore",
        "/kv/import",
    ],
)
def test_urls_of_what_is_missing_are_unknown(server, path):
    """Classes 22, 25 to 28 and 30 (weights that change under the pages)."""
    for port in (server.port, server.admin_port):
        status, _, _ = server.request("POST", path, b"{}", {}, port=port)
        assert status == 404, (path, port)
