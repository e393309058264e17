"""A client of any OpenAI-compatible server, on the standard library alone: many requests at once,
with retries where a server says that it is busy.
"""

import concurrent.futures
import json
import sys
import time
import urllib.error
import urllib.request

ATTEMPTS = 5
BUSY = {429, 503}


class ServerError(Exception):
    """The server refused a request for good, or could not be reached; the text says which."""


class Server:
    """`base_url` is the one that clients use, with or without /v1 at its end."""

    def __init__(self, base_url, model=None, api_key=None, timeout_s=600):
        self.root = base_url.rstrip("/").removesuffix("/v1")
        self.api_key = api_key
        self.timeout_s = timeout_s
        self.model = model or self._first_model()

    def _first_model(self):
        models = self._call("GET", "/v1/models")["data"]
        if not models:
            raise ServerError(f"{self.root} serves no model")
        return models[0]["id"]

    def _request(self, method, path, body):
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(self.root + path, data, headers, method=method)

    def _call(self, method, path, body=None):
        for attempt in range(ATTEMPTS):
            try:
                request = self._request(method, path, body)
                with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read().decode("utf-8", "replace")[:400]
                if error.code not in BUSY or attempt + 1 == ATTEMPTS:
                    raise ServerError(f"{path}: status {error.code}: {said}") from error
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                raise ServerError(f"{self.root}{path}: {error}") from error
            time.sleep(0.5 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def chat(self, **fields):
        """The first choice of /v1/chat/completions."""
        answer = self._call("POST", "/v1/chat/completions", {"model": self.model, **fields})
        return answer["choices"][0]

    def complete(self, **fields):
        """The choices of /v1/completions."""
        answer = self._call("POST", "/v1/completions", {"model": self.model, **fields})
        return answer["choices"]

    def tokenize(self, text):
        """Ids by the server's own /tokenize (vLLM's form); not every server has one."""
        return self._call("POST", "/tokenize", {"model": self.model, "prompt": text})["tokens"]


def add_server_flags(parser):
    parser.add_argument("--base-url", required=True, help="http://host:port, with or without /v1")
    parser.add_argument("--model", help="a name that the server knows; default: its first")
    parser.add_argument("--api-key")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at once")


def server_of(args):
    return Server(args.base_url, args.model, args.api_key)


def each(work, items, concurrency, label):
    """[work(item) for item in items], many at once, with a line of progress a second. The first
    that fails ends it all.
    """
    out = [None] * len(items)
    shown = time.monotonic()
    pool = concurrent.futures.ThreadPoolExecutor(concurrency)
    try:
        places = {pool.submit(work, item): i for i, item in enumerate(items)}
        for done, future in enumerate(concurrent.futures.as_completed(places), 1):
            out[places[future]] = future.result()
            if time.monotonic() - shown >= 1 or done == len(items):
                shown = time.monotonic()
                print(f"{label}: {done} of {len(items)}", file=sys.stderr)
    finally:
        pool.shutdown(cancel_futures=True)
    return out
