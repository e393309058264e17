"""Clients that are slow, rude or gone: each costs itself alone."""

import json
import re
import socket
import time

import pytest
from bad_rows import post

LONG = {"prompt": [1, 2, 3], "max_tokens": 3000, "ignore_eos": True, "temperature": 0}


def answers(data):
    """The status codes of all responses in `data`."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def test_keep_alive_and_pipelining(server):
    """Requests of one connection are answered in order, each once."""
    body = json.dumps({"model": server.model, "prompt": [1], "max_tokens": 2}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    one = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    get = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert answers(server.raw(one + get + one + get + last)) == [200, 200, 200, 200, 404]


def test_head_and_options(server):
    status, headers, body = server.request("HEAD", "/health")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 0
    status, headers, body = server.request("OPTIONS", "/v1/completions")
    assert (status, body, headers["Allow"]) == (204, b"", "POST, OPTIONS")


def test_http_1_0_stream_ends_with_the_connection(server):
    body = json.dumps({"model": server.model, "prompt": [1], "stream": True}).encode()
    data = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    answer = server.raw(data)
    assert b"Transfer-Encoding" not in answer and answer.endswith(b"data: [DONE]\n\n")


def test_expect_continue(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        body = json.dumps({"model": server.model, "prompt": [1], "max_tokens": 1}).encode()
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_request_ids(server):
    """H11, H12: ours is new each time; the client's is never an answer's."""
    for sent in ("abc-1", "x" * 5000, "a b", "\x1b[2J"):
        _, headers, _ = server.request("GET", "/health", headers={"x-request-id": sent})
        assert len(headers["x-request-id"]) == 32 and headers["x-request-id"] != sent
    with open(server.log_path, "rb") as log:
        lines = log.read()
    assert b"client_id=abc-1" in lines
    assert b"\x1b[2J" not in lines and b"x" * 200 not in lines


def wait_for(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_leaving_ends_the_request(server):
    """H8: in the stream, before its first byte, and by closing only one side."""
    before = server.wait_idle()
    stream = server.open_stream("/v1/completions", **LONG)
    next(iter(stream))
    stream.close()
    request = post("/v1/completions", {"model": server.model, **LONG})
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request)
        time.sleep(0.05)
    server.raw(request, timeout=2, half_close=True)
    after = server.wait_idle(seconds=5)
    # The last may have left before its request reached the engine.
    aborted, gone = "sglang:num_aborted_requests_total", "quire:clients_gone_total"
    assert after[aborted] >= before[aborted] + 2
    assert after[gone] >= before[gone] + 3
    assert after["sglang:generation_tokens_total"] - before["sglang:generation_tokens_total"] < 6000
    assert server.audit() == (200, {"clean": True})


def test_leaving_the_queue(start):
    """H8: a request that waits is forgotten as soon as its client is gone."""
    with start("--max-running-requests", "1") as small:
        first = small.open_stream("/v1/completions", **LONG)
        next(iter(first))
        waiting = small.open_stream("/v1/completions", **LONG)
        wait_for(lambda: small.metrics()["sglang:num_queue_reqs"] == 1, "one in the queue")
        waiting.close()
        wait_for(lambda: small.metrics()["sglang:num_queue_reqs"] == 0, "the queue is empty")
        first.close()
        small.wait_idle()
        assert small.audit() == (200, {"clean": True})


def test_full_queue_says_so(start):
    """A5: past the queue's bound the answer is 429 with a time to come back."""
    with start("--max-running-requests", "1", "--max-queued-requests", "2") as small:
        streams = [small.open_stream("/v1/completions", **LONG)]
        next(iter(streams[0]))
        streams += [small.open_stream("/v1/completions", **LONG) for _ in range(2)]
        wait_for(lambda: small.metrics()["sglang:num_queue_reqs"] == 2, "two in the queue")
        status, headers, body = small.request(
            "POST", "/v1/completions", json.dumps({"model": small.model, "prompt": [1]}),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        error = json.loads(body)["error"]
        assert (status, error["code"], error["type"]) == (429, "queue_full", "rate_limit_error")
        assert int(headers["Retry-After"]) >= 1
        assert small.is_healthy()
        for stream in streams:
            stream.close()
        small.wait_idle()
        assert small.complete(prompt=[1], max_tokens=1)


@pytest.fixture(scope="module")
def impatient(start):
    flags = ["--header-timeout", "1", "--body-timeout", "2", "--keep-alive-timeout", "1"]
    with start(*flags, "--stall-timeout", "1", "--max-connections", "40") as server:
        yield server


def trickle(server, pieces, pause):
    """Sends piece by piece; (answer, seconds until the server closed)."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.settimeout(pause)
        answer = b""
        for piece in pieces:
            try:
                connection.sendall(piece)
                chunk = connection.recv(65536)
                if not chunk:
                    break
                answer += chunk
            except TimeoutError:
                continue
            except OSError:
                break
        return answer, time.monotonic() - started


def test_slow_head_and_body_have_a_deadline(impatient):
    """H6: trickling resets nothing; the deadline is for the whole."""
    letters = [b"GET /health HTTP/1.1\r\nHost: a\r\nx: "] + [b"a"] * 200
    answer, seconds = trickle(impatient, letters, 0.1)
    assert answers(answer) == [408] and seconds < 5
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    answer, seconds = trickle(impatient, [head] + [b" "] * 200, 0.1)
    assert answers(answer) == [408] and seconds < 6


def test_idle_connections_are_closed_silently(impatient):
    answer, seconds = trickle(impatient, [b""] * 50, 0.1)
    assert answer == b"" and seconds < 4


def test_too_many_connections(impatient):
    """Past the cap a connection is told and closed; those that are open go on."""
    open_ones = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(40)]
    time.sleep(0.2)
    assert answers(impatient.raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", timeout=3)) == [503]
    for connection in open_ones:
        connection.close()
    wait_for(impatient.is_healthy, "room again")


def test_slow_reader_is_ended(impatient):
    """H7: a client that asks for much and reads nothing loses its request, not our memory."""
    body = {"model": impatient.model, "prompt": [1], "n": 16, "max_tokens": 2000, "stream": True}
    body |= {"logprobs": 20, "ignore_eos": True}
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", impatient.port))
        connection.sendall(post("/v1/completions", body))
        wait_for(
            lambda: impatient.metrics()["quire:clients_stalled_total"] == 1, "a stalled client", 60
        )
    impatient.wait_idle()
    assert impatient.audit() == (200, {"clean": True})
