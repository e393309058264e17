"""`quire chat`: with a server and with a model in its own process, the same answers."""

import subprocess


def chat(binary, *flags, said=None):
    return subprocess.run(
        [binary, "chat", *flags], input=said, capture_output=True, text=True, timeout=120
    )


def test_server_and_process_give_the_same_answer(binary, model_path, server):
    flags = ["--temperature", "0", "--max-tokens", "40", "--message", "Hello, who are you?"]
    remote = chat(binary, "--url", server.url, *flags)
    local = chat(binary, "--model-path", model_path, *flags)
    assert (remote.returncode, local.returncode) == (0, 0), remote.stderr + local.stderr
    assert remote.stdout == local.stdout
    assert remote.stdout.strip()


def test_conversation_from_standard_input(binary, server):
    before = server.metrics()["sglang:prompt_tokens_total"]
    said = "Hello\n\n/system Be brief.\nHello\nAgain\n/clear\n/nonsense\n/exit\nnever asked\n"
    flags = ["--url", server.url, "--temperature", "0", "--max-tokens", "8", "--no-thinking"]
    ended = chat(binary, *flags, said=said)
    assert ended.returncode == 0, ended.stderr
    assert "/clear" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert server.metrics()["sglang:prompt_tokens_total"] > before


def test_says_what_is_wrong(binary, server, start, tmp_path):
    closed = chat(binary, "--url", "http://127.0.0.1:1", "--message", "x")
    assert closed.returncode == 1 and "nobody answers" in closed.stderr
    other = chat(binary, "--url", server.url, "--model", "another", "--message", "x")
    assert other.returncode == 1 and "does not exist" in other.stderr
    assert chat(binary, "--url", "ftp://x", "--message", "x").returncode == 1
    assert chat(binary, "--model-path", str(tmp_path), "--message", "x").returncode == 1
    both = chat(binary, "--url", server.url, "--model-path", str(tmp_path))
    assert both.returncode == 2
    with start("--api-key", "secret") as keyed:
        flags = ["--url", keyed.url, "--max-tokens", "4", "--message", "x"]
        assert "API key" in chat(binary, *flags).stderr
        assert chat(binary, *flags, "--api-key", "secret").returncode == 0
