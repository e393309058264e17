"""How a server starts, refuses to start, and ends."""

import signal
import socket
import subprocess
import time

LONG = {"prompt": [1, 2, 3], "max_tokens": 1500, "ignore_eos": True, "temperature": 0}


def run(binary, *flags):
    return subprocess.run([binary, "serve", *flags], capture_output=True, text=True, timeout=60)


def test_start_lines(start):
    with start("--max-total-tokens", "8192", "--context-length", "1024") as server:
        with open(server.log_path) as log:
            text = log.read()
        assert "max_total_num_tokens=8192" in text
        assert "Maximum concurrency for 1024 tokens per request: 8.00x" in text
        assert "The server is fired up and ready to roll!" in text
        status, answer = server.post(
            "/v1/completions", {"model": server.model, "prompt": [1], "max_tokens": 1024}
        )
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert server.get_json("/model_info")["context_length"] == 1024


def test_term_lets_answers_finish(start):
    with start() as server:
        stream = server.open_stream("/v1/completions", **LONG)
        events = iter(stream)
        next(events)
        server.signal(signal.SIGTERM)
        time.sleep(0.3)
        status, headers, _ = server.request("GET", "/health")
        assert status == 503 and "Retry-After" in headers
        status, answer = server.post("/v1/completions", {"model": server.model, "prompt": [1]})
        assert (status, answer["error"]["code"]) == (503, "engine_unavailable")
        rest = list(events)
        assert rest[-1] == "[DONE]"
        assert server.process.wait(timeout=20) == 0


def test_second_signal_ends_answers(start):
    with start("--drain-timeout", "60") as server:
        stream = server.open_stream("/v1/completions", **{**LONG, "max_tokens": 3900, "n": 8})
        events = iter(stream)
        next(events)
        server.signal(signal.SIGINT)
        time.sleep(0.2)
        server.signal(signal.SIGINT)
        rest = list(events)
        assert rest[-1]["error"]["code"] == "engine_unavailable"
        assert server.process.wait(timeout=20) == 0


def test_drain_has_a_deadline(start):
    with start("--drain-timeout", "1") as server:
        stream = server.open_stream("/v1/completions", **{**LONG, "max_tokens": 3900, "n": 8})
        events = iter(stream)
        next(events)
        server.signal(signal.SIGTERM)
        assert list(events)[-1] != "[DONE]"
        assert server.process.wait(timeout=20) == 0


def test_port_in_use(binary, model_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = run(binary, "--model-path", model_path, "--port", port)
        assert ended.returncode == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in ended.stderr


def test_refuses_to_start(binary, model_path, tmp_path):
    cases = [
        (["--model-path", str(tmp_path)], 1, "tiktoken.model"),
        (["--model-path", model_path, "--host", "not-an-address"], 1, "not an IP address"),
        (["--model-path", model_path, "--kv-cache-dtype", "fp8_e5m2"], 1, "fp8_e5m2"),
        (["--model-path", model_path, "--tp", "8"], 1, "--tp-size"),
        (["--model-path", model_path, "--context-length", "99999999"], 1, "context"),
        (["--model-path", model_path, "--api-key-file", str(tmp_path / "none")], 1, "none"),
        (["--model-path", model_path, "--port", "70000"], 1, "--port"),
        (["--model-path", model_path, "--no-such-flag"], 2, "no-such-flag"),
        ([], 2, "--model-path"),
    ]
    for flags, code, said in cases:
        ended = run(binary, *flags)
        assert ended.returncode == code, (flags, ended.stderr)
        assert said in ended.stderr + ended.stdout, (flags, ended.stderr)


def test_flush_cache(start):
    with start() as server:
        fields = {"prompt": [5] * 200, "max_tokens": 1}

        def cached():
            usage = server.complete(**fields)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert (cached(), cached() >= 128) == (0, True)
        server.wait_idle()
        assert server.request("POST", "/flush_cache", port=server.admin_port)[0] == 200
        assert cached() == 0
        assert server.get("/audit", port=server.admin_port)[0] == 200
