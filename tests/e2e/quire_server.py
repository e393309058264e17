"""A `quire serve` process for tests, and small clients of it: one speaks JSON, one raw bytes."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time

START_SECONDS_MAX = 60
ANSWER_SECONDS_MAX = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class QuireServer:
    """Starts on free ports and is ready when the constructor returns."""

    def __init__(self, binary, model_path, *flags, log_path=None):
        self.port, self.admin_port = free_port(), free_port()
        self.model = os.path.basename(model_path)
        command = [
            *(binary, "serve", "--model-path", model_path, "--port", str(self.port)),
            *("--admin-port", str(self.admin_port), "--log-requests", *flags),
        ]
        self.log_path = log_path
        log = open(log_path, "wb") if log_path else subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.is_healthy():
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {command}"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def is_healthy(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def request(self, method, path, body=None, headers=None, port=None):
        """(status, headers, bytes of the body)."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.port, timeout=ANSWER_SECONDS_MAX
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path, headers=None, port=None):
        status, _, body = self.request("GET", path, headers=headers, port=port)
        return status, body

    def get_json(self, path, headers=None):
        status, body = self.get(path, headers)
        assert status == 200, (status, body)
        return json.loads(body)

    def post(self, path, body, headers=None):
        """(status, parsed body). `body` is what JSON holds, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        status, _, answer = self.request("POST", path, data, headers)
        return status, json.loads(answer)

    def complete(self, headers=None, **fields):
        """The parsed answer of /v1/completions, which must be 200."""
        status, answer = self.post("/v1/completions", {"model": self.model, **fields}, headers)
        assert status == 200, (status, answer)
        return answer

    def events(self, path, **fields):
        """The events of a stream, parsed; the last is "[DONE]" when it is there."""
        with self.open_stream(path, **fields) as stream:
            return list(stream)

    def open_stream(self, path, **fields):
        return Stream(self, path, {"model": self.model, "stream": True, **fields})

    def raw(self, data, timeout=10, half_close=False):
        """Everything the server says to these bytes until it closes or `timeout` passes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            answer = b""
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                while chunk := connection.recv(65536):
                    answer += chunk
            except (TimeoutError, ConnectionResetError, BrokenPipeError):
                pass
            return answer

    def metrics(self):
        """Values by name; series that differ in other labels than the model's are added up."""
        out = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            out[name] = out.get(name, 0.0) + float(value)
        return out

    def audit(self):
        status, body = self.get("/audit", port=self.admin_port)
        return status, json.loads(body)

    def wait_idle(self, seconds=30):
        """Until no request runs or waits."""
        deadline = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if metrics["sglang:num_running_reqs"] + metrics["sglang:num_queue_reqs"] == 0:
                return metrics
            assert time.monotonic() < deadline, "requests did not end"
            time.sleep(0.05)

    def signal(self, which=signal.SIGTERM):
        self.process.send_signal(which)

    def stop(self):
        if self.process.poll() is None:
            self.signal()
        return self.process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Stream:
    """A streamed answer, event by event; closing it is what a client that leaves does."""

    def __init__(self, server, path, body):
        data = json.dumps(body).encode()
        self.connection = socket.create_connection(("127.0.0.1", server.port), ANSWER_SECONDS_MAX)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: quire\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        self.connection.sendall(head.encode() + data)
        self.file = self.connection.makefile("rb")
        self.status = None

    def read_head(self):
        if self.status is None:
            self.status = int(self.file.readline().split()[1])
            while self.file.readline().strip():
                pass

    def __iter__(self):
        self.read_head()
        for line in self.file:
            if not line.startswith(b"data: "):
                continue
            data = line[len(b"data: ") :].strip()
            yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def close(self):
        self.file.close()
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def text_of(events):
    """What a stream said, whatever its chunks: (thoughts, content, tool calls, finish)."""
    thoughts, content, calls, finish = "", "", {}, None
    for event in events:
        if event == "[DONE]" or not event.get("choices"):
            continue
        choice = event["choices"][0]
        finish = choice["finish_reason"] or finish
        delta = choice.get("delta", {"content": choice.get("text", "")})
        thoughts += delta.get("reasoning_content") or ""
        content += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            known = calls.setdefault(call["index"], {"name": "", "arguments": ""})
            known["name"] += call["function"].get("name", "")
            known["arguments"] += call["function"].get("arguments", "")
    return thoughts, content, [calls[i] for i in sorted(calls)], finish
