"""quire compress --method gptq: the bytes against a numpy program, resumed runs, and refusals."""

import json
import pathlib
import re
import resource
import shutil
import subprocess

import compress_reference as reference
import numpy as np
import pytest
from test_compress import compress, digest, succeed

GPTQ = ["--format", "int4", "--method", "gptq"]


@pytest.fixture(scope="module")
def texts(model_path, tmp_path_factory):
    """Every kind of line: items as they stand, their ids, and text."""
    path = tmp_path_factory.mktemp("calibration") / "texts.jsonl"
    lines = []
    for task in ("count", "sort", "people"):
        items = pathlib.Path(model_path, "eval", task + ".jsonl").read_text().splitlines()
        lines += items[10:30]
        turn = json.loads(items[40])["turns"][0]
        lines.append(json.dumps({"ids": turn["prompt_ids"] + turn["expected_ids"]}))
        lines.append(json.dumps({"text": json.loads(items[0])["prompt_text"]}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def calibrated(binary, model_path, texts, tmp_path_factory):
    """(folder of the checkpoint, folder of what the experts were given), in groups of 32."""
    folder = tmp_path_factory.mktemp("gptq")
    flags = [*GPTQ, "--calibration", str(texts), "--activations", str(folder / "given")]
    succeed(binary, model_path, folder / "out", *flags)
    return folder / "out", folder / "given"


def given_to(folder, layer, expert):
    """What an expert is calibrated with and what is held out, each [tokens, hidden]."""
    arrays = reference.read_file(folder / f"layer-{layer:05}.safetensors")
    read = lambda name, dtype: np.frombuffer(arrays[name][2], dtype).reshape(arrays[name][1])
    is_given = (read("experts", "<i4") == expert).any(1)
    is_held_out = read("held_out", np.uint8)[:, 0] == 1
    inputs = reference.from_bf16(read("inputs", "<u2"))
    return inputs[is_given & ~is_held_out], inputs[is_given & is_held_out]


@pytest.mark.parametrize("group", [32, 128])
def test_it_is_what_the_reference_writes(binary, model_path, texts, calibrated, tmp_path, group):
    out, given = calibrated
    if group == 128:
        flags = [*GPTQ, "--calibration", str(texts), "--activations", str(given)]
        out = tmp_path / "out"
        succeed(binary, model_path, out, *flags, "--group-size", "128")
    before, after = reference.read_folder(model_path), reference.read_folder(out)
    report = json.loads((out / "report.json").read_text())
    losses = {tensor["name"]: tensor for tensor in report["tensors"]}
    dampings = set()
    for layer, expert in ((1, 0), (2, 7), (3, 15)):
        stem = f"model.layers.{layer}.mlp.experts.{expert}."
        parts = ("gate_proj", "up_proj", "down_proj")
        weights = {part: reference.decode(before, stem + part) for part in parts}
        tokens = given_to(given, layer, expert)
        gates = weights["gate_proj"], weights["up_proj"]
        inner = [reference.gated(some, *gates) for some in tokens]
        for part, weight in weights.items():
            fit, held_out = inner if part == "down_proj" else tokens
            name = stem + part
            words, scales, damping = reference.quantise_int4_for(weight, group, fit, held_out)
            assert after[name + ".weight_packed"][2] == words.tobytes(), name
            assert after[name + ".weight_scale"][2] == scales.tobytes(), name
            # What the report says of it.
            loss = losses[name + ".weight"]["calibration"]
            assert loss["tokens"] == len(fit) + len(held_out) >= 64
            assert loss["held_out"] == len(held_out)
            assert loss.get("damping", 0) == damping
            assert loss["method"] == ("gptq" if damping else "rtn")
            dampings.add(damping)
            nearest = reference.decode_int4(*reference.quantise_int4(weight, group), group)
            chosen = reference.decode_int4(words, scales, group)
            x, w = held_out.astype(np.float64), weight.astype(np.float64)
            whole = np.linalg.norm(x @ w.T)
            off, rtn_off = (np.linalg.norm(x @ (w - v).T) / whole for v in (chosen, nearest))
            assert loss["output_error"] == pytest.approx(off, rel=1e-4)
            assert loss["rtn_output_error"] == pytest.approx(rtn_off, rel=1e-4)
            assert off < rtn_off or not damping
            rtn_weights = np.linalg.norm(w - nearest) / np.linalg.norm(w)
            assert loss["rtn_relative_error"] == pytest.approx(rtn_weights, rel=1e-4)
    assert len(dampings) > 1


def test_outputs_are_nearer_and_the_engine_runs_it(binary, model_path, calibrated):
    out, _ = calibrated
    report = json.loads((out / "report.json").read_text())["calibration"]
    assert report["gptq_tensors"] + report["too_few_tokens"] + report["not_better"] == 144
    assert report["gptq_tensors"] > 80
    assert report["output_error"] < 0.9 * report["rtn_output_error"]
    data = str(pathlib.Path(model_path) / "eval")
    command = [binary, "eval", "--model-path", str(out), "--data", data, "--json"]
    done = subprocess.run(
        [*command, "--task", "count,sort", "--limit", "50"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    right = {task["task"]: task["accuracy"] for task in json.loads(done.stdout)["tasks"]}
    assert min(right.values()) >= 0.96


def test_experts_that_saw_little_are_rounded_and_said_to_be(
    binary, model_path, texts, tmp_path
):
    flags = [*GPTQ, "--calibration", str(texts), "--calibration-tokens", "900"]
    done = succeed(binary, model_path, tmp_path / "few", *flags)
    succeed(binary, model_path, tmp_path / "rtn", "--format", "int4")
    few, rtn = reference.read_folder(tmp_path / "few"), reference.read_folder(tmp_path / "rtn")
    report = json.loads((tmp_path / "few" / "report.json").read_text())
    assert report["calibration"]["fewest_tokens"] < 64
    assert 0 < report["calibration"]["too_few_tokens"] < 144
    assert f"{report['calibration']['too_few_tokens']} that saw fewer than 64 tokens" in done.stdout
    methods = set()
    for tensor in report["tensors"]:
        name = tensor["name"].removesuffix(".weight")
        is_same = few[name + ".weight_packed"] == rtn[name + ".weight_packed"]
        assert is_same == (tensor["calibration"]["method"] == "rtn"), name
        assert is_same or tensor["calibration"]["held_out"] >= 16
        methods.add(tensor["calibration"]["method"])
    assert methods == {"rtn", "gptq"}


def test_broken_off_it_goes_on_and_threads_do_not_matter(
    binary, model_path, texts, calibrated, tmp_path
):
    flags = [*GPTQ, "--calibration", str(texts), "--max-shard-size", "1"]
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))
    out = tmp_path / "out"
    # What the experts are given takes more than that: nothing is left that looks whole.
    done = compress(binary, model_path, out, *flags, preexec_fn=limited)
    assert done.returncode == 1 and "layer-00001.safetensors" in done.stderr
    kept = [*flags, "--activations", str(calibrated[1])]
    done = compress(binary, model_path, out, *kept, "--threads", "1", preexec_fn=limited)
    assert done.returncode == 1 and "model-0000" in done.stderr
    succeed(binary, model_path, out, *flags, "--threads", "5")
    succeed(binary, model_path, tmp_path / "whole", *kept)
    assert digest(out) == digest(tmp_path / "whole")
    again = [*GPTQ, "--activations", str(calibrated[1]), "--calibration", str(texts)]
    succeed(binary, model_path, tmp_path / "again", *again, "--threads", "1")
    assert digest(tmp_path / "again") == digest(calibrated[0])


def test_what_does_not_fit_is_refused(binary, model_path, texts, calibrated, tmp_path):
    def refused(message, *flags):
        done = compress(binary, model_path, tmp_path / "out", *flags)
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert not list((tmp_path / "out").glob("[!.]*"))
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    text = ["--calibration", str(texts)]
    refused("needs --calibration", *GPTQ)
    refused("is of --format int4", "--format", "nvfp4", "--method", "gptq", *text)
    refused("--calibration is of --method gptq", "--format", "int4", *text)
    other = [*text, "--calibration-tokens", "300", "--activations", str(calibrated[1])]
    refused("of another model or another text", *GPTQ, *other)
    lines = {
        "line 2": '{"ids": [1, 2]}\n{"id": 3}\n',
        "not in the vocabulary": '{"ids": [4352]}\n',
        "is not a whole number": '{"ids": [-1]}\n',
        "hold no tokens": "\n",
        "has 4097 tokens": json.dumps({"ids": [7] * 4097}),
    }
    for message, content in lines.items():
        (tmp_path / "bad.jsonl").write_text(content)
        refused(message, *GPTQ, "--calibration", str(tmp_path / "bad.jsonl"))
    refused("missing.jsonl", *GPTQ, "--calibration", str(tmp_path / "missing.jsonl"))


def test_memory_that_is_not_there_is_refused_and_just_enough_is_enough(
    binary, model_path, tmp_path
):
    """The kernel holds the limit: were the sum too small, what it lets through would end."""
    config = json.loads(pathlib.Path(model_path, "config.json").read_text())
    hidden, inner = 1536, 512
    config.update(hidden_size=hidden, moe_intermediate_size=inner, num_hidden_layers=2)
    config.update(n_routed_experts=2, num_experts_per_tok=2, intermediate_size=64)
    bare, source, given = tmp_path / "config", tmp_path / "in", tmp_path / "given"
    bare.mkdir()
    (bare / "config.json").write_text(json.dumps(config))
    command = [binary, "shard", "--model-path", str(bare), "--load-format", "dummy"]
    subprocess.run([*command, "--out", str(source)], check=True, capture_output=True)
    (source / "shard.json").unlink()
    ids = np.random.default_rng(6).integers(0, 4000, (4, 128))
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"ids": line.tolist()}) + "\n" for line in ids))
    flags = [*GPTQ, "--calibration", str(texts), "--activations", str(given), "--threads", "4"]
    succeed(binary, source, tmp_path / "free", *flags)
    report = json.loads((tmp_path / "free" / "report.json").read_text())["calibration"]
    assert report["too_few_tokens"] == 0  # so that every damping was tried

    def limited(name, limit):
        at_most = lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        return compress(binary, source, tmp_path / name, *flags, preexec_fn=at_most)

    def refusal(done):
        assert done.returncode == 1 and "RLIMIT_DATA" in done.stderr, done.stderr
        assert not (tmp_path / "out").exists()
        needed, available = re.findall(r"\((\d+) bytes\)", done.stderr)
        return int(needed), int(available)

    limit = 60_000_000
    needed, available = refusal(limited("out", limit))
    # docs/compress.md, by hand: squares of the inputs, weights, groups, tokens, the rest.
    n, weights = hidden, hidden * inner
    arrays = 8 * n * n + 18.5 * weights + 6 * weights / 32 + 4096 * n + 8 * weights
    assert needed == arrays + 2048 * (hidden + inner) + 32 * 2**20
    short, some = needed - available, 1 << 20  # the heap is not as large in every run
    assert refusal(limited("out", limit + short - some))[0] == needed
    done = limited("out", limit + short + some)
    assert done.returncode == 0 and "for 1 of 4 threads" in done.stderr, done.stderr
    assert digest(tmp_path / "out") == digest(tmp_path / "free")


def test_a_damaged_record_is_an_error_with_its_name(
    binary, model_path, texts, calibrated, tmp_path
):
    given = tmp_path / "given"
    flags = [*GPTQ, "--calibration", str(texts), "--activations", str(given)]
    shutil.copytree(calibrated[1], given)
    file = given / "layer-00002.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-2])
    done = compress(binary, model_path, tmp_path / "out", *flags)
    assert done.returncode == 1 and str(file) in done.stderr
    n_tokens = reference.read_file(calibrated[1] / file.name)["held_out"][1][0]
    end = len(whole) - n_tokens  # of the inputs
    file.write_bytes(whole[: end - 2] + b"\xc0\x7f" + whole[end:])
    done = compress(binary, model_path, tmp_path / "out", *flags)
    assert done.returncode == 1 and str(file) in done.stderr and "not a finite" in done.stderr
    assert not list((tmp_path / "out").glob("[!.]*"))
