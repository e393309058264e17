"""Keys, and the prefix cache of a tenant that no other can see into."""

import pytest


@pytest.fixture(scope="module")
def keyed(start, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# tenant key\nalice key-a\nalice key-b\nbob key-c\n")
    with start("--api-key-file", str(path)) as server:
        yield server


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_without_a_key(keyed):
    for headers in ({}, bearer("key"), bearer(""), {"Authorization": "key-a"}):
        for path in ("/v1/models", "/server_info", "/model_info"):
            assert keyed.get(path, headers)[0] == 401, (path, headers)
        status, answer = keyed.post("/v1/completions", {"model": keyed.model}, headers)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    _, headers, _ = keyed.request("GET", "/v1/models")
    assert headers["WWW-Authenticate"] == "Bearer"
    assert keyed.get("/health")[0] == keyed.get("/metrics")[0] == 200


def test_secrets_are_not_shown(keyed):
    for path in ("/server_info", "/model_info", "/metrics", "/v1/models"):
        body = keyed.get(path, bearer("key-a"))[1]
        for secret in (b"key-a", b"key-b", b"key-c", b"alice", b"keys"):
            assert secret not in body, (path, secret)


def test_prefix_is_shared_within_a_tenant_only(keyed):
    def cached(key):
        answer = keyed.complete(bearer(key), prompt=[5] * 200, max_tokens=1)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("key-a") == 0
    assert cached("key-b") >= 128
    assert cached("key-c") == 0
    assert cached("key-c") >= 128
