"""Input that must not work: what is sent and what comes back, one row a case.

The names begin with the row of the list of abuse that the server is held to: H for HTTP, J for
JSON and text, P for parameters, G for tools, M for media, A for secrets.
"""

import gzip
import json
from dataclasses import dataclass


@dataclass
class Row:
    name: str
    request: bytes  # the whole of it, as it goes over the wire
    status: int
    code: str | None = None
    param: str | None = None


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n"
INVALID = "invalid_value"


def post(path, body, *headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Connection: close"]
    lines += headers or ["Content-Type: application/json"]
    lines += [f"Content-Length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


def closing(method, path):
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


def http_rows():
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    small = b'{"model":"x"}'
    return [
        Row("H1 giant header", GET + b"x: " + b"a" * 20000, 431, "headers_too_large"),
        Row("H1 many headers", GET + b"".join(b"h%d: v\r\n" % i for i in range(200)) + b"\r\n",
            431, "headers_too_large"),
        Row("H1 long request line", b"GET /" + b"a" * 9000, 414, "uri_too_long"),
        Row("H2 endless chunks", chunked + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 17, 413,
            "request_too_large"),
        Row("H2 declared too large", HEAD + b"Content-Length: 99999999999\r\n\r\n", 413,
            "request_too_large"),
        Row("H2 no length", HEAD + b"\r\n", 411, "length_required"),
        Row("H3 negative chunk", chunked + b"-2\r\n", 400),
        Row("H3 huge chunk", chunked + b"fffffffffffffffe\r\n", 400),
        Row("H3 nine digits", chunked + b"100000000\r\n", 400),
        Row("H4 tiny chunks", chunked + b"1\r\n \r\n" * 20000, 413, "request_too_large"),
        Row("H5 length past 64 bits", HEAD + b"Content-Length: 18446744073709551617\r\n\r\n", 413,
            "request_too_large"),
        Row("H5 negative length", HEAD + b"Content-Length: -1\r\n\r\n", 400),
        Row("H9 length and chunks", HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
            b"\r\n0\r\n\r\n", 400),
        Row("H9 two lengths", HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
        Row("H9 folded header", GET + b"a: b\r\n c\r\n\r\n", 400),
        Row("H9 bare LF", b"GET /health HTTP/1.1\nHost: a\n\n", 400),
        Row("H9 NUL", GET + b"a: b\0c\r\n\r\n", 400),
        Row("H9 blank before colon", GET + b"a : b\r\n\r\n", 400),
        Row("H9 two hosts", GET + b"Host: b\r\n\r\n", 400),
        Row("H10 unknown path", closing("GET", "/nothing"), 404, "unknown_url"),
        Row("H10 encoded path", closing("GET", "/%2e%2e/health"), 404, "unknown_url"),
        Row("H10 double slash", closing("GET", "//health"), 404, "unknown_url"),
        Row("H10 wrong method", closing("GET", "/v1/completions"), 405, "method_not_allowed"),
        Row("H10 unknown method", closing("BREW", "/health"), 405, "method_not_allowed"),
        Row("H10 wrong type", post("/v1/completions", small, "Content-Type: text/plain"), 415,
            "unsupported_media_type"),
        Row("H13 gzip", post("/v1/completions", gzip.compress(b" " * 100000),
            "Content-Type: application/json", "Content-Encoding: gzip"), 415,
            "unsupported_media_type"),
        Row("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        Row("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        Row("A3 operators' routes are not here", closing("GET", "/audit"), 404, "unknown_url"),
        Row("A3 flush is not here", post("/flush_cache", b""), 404, "unknown_url"),
    ]  # fmt: skip


def json_rows(model):
    def raw(name, body):
        return Row(name, post("/v1/chat/completions", body), 400)

    text = f'{{"model":"{model}","messages":[{{"role":"user","content":"%s"}}]}}'
    return [
        raw("J1 empty", b""),
        raw("J1 truncated", b'{"model":'),
        raw("J1 trailing bytes", b"{} x"),
        raw("J1 byte order mark", b"\xef\xbb\xbf{}"),
        raw("J1 duplicate key", f'{{"model":"{model}","model":"{model}"}}'.encode()),
        raw("J1 comment", b"/* */ {}"),
        raw("J2 deep array", b"[" * 100000),
        raw("J2 deep in an ignored field",
            b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}"),
        raw("J2 deep object", b'{"a":' * 5000 + b"1" + b"}" * 5000),
        raw("J3 NaN", b'{"temperature":NaN}'),
        raw("J3 1e400", b'{"temperature":1e400}'),
        raw("J4 invalid UTF-8", (text % "x").encode().replace(b'"x"', b'"\xff"')),
        raw("J4 overlong", (text % "x").encode().replace(b'"x"', b'"\xc0\xaf"')),
        raw("J4 lone surrogate", (text % r"\ud800").encode()),
        raw("J4 reversed pair", (text % r"\udc00\ud800").encode()),
        raw("J4 surrogate in an ignored key", br'{"\ud800":1}'),
    ]  # fmt: skip


def field_rows(model):
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

    def row(name, code, param, status=400, **fields):
        return Row(name, post("/v1/chat/completions", {**chat, **fields}), status, code, param)

    def prompt(name, code, param, value, **fields):
        body = {"model": model, "prompt": value, **fields}
        return Row(name, post("/v1/completions", body), 400, code, param)

    long_text = "one two three four five six seven eight " * 2000
    return [
        row("J3 number as string", "invalid_type", "temperature", temperature="1"),
        row("J3 past 64 bits", "integer_above_max_value", "seed", seed=2**64),
        row("J3 content of a wrong type", INVALID, "messages[0].content",
            messages=[{"role": "user", "content": 5}]),
        row("J10 template in a request", "unsupported_parameter", "chat_template",
            chat_template="{{ messages }}"),
        row("P1 many choices", "integer_above_max_value", "n", n=10**9),
        row("P1 best_of", "unsupported_parameter", "best_of", best_of=10**9),
        row("P2 no tokens", "integer_below_min_value", "max_tokens", max_tokens=0),
        row("P2 negative", "integer_below_min_value", "max_tokens", max_tokens=-1),
        row("P2 2^31", "integer_above_max_value", "max_tokens", max_tokens=2**31),
        row("P2 2^63", "integer_above_max_value", "max_tokens", max_tokens=2**63),
        row("P2 prompt and answer", "context_length_exceeded", "messages", max_tokens=10**6),
        row("P3 long prompt", "context_length_exceeded", "messages",
            messages=[{"role": "user", "content": long_text}]),
        row("P4 many logprobs", "integer_above_max_value", "top_logprobs", logprobs=True,
            top_logprobs=10**6),
        row("P4 prompt logprobs", "unsupported_parameter", "prompt_logprobs",
            prompt_logprobs=10**6),
        row("P5 negative temperature", "decimal_below_min_value", "temperature", temperature=-1),
        row("P5 hot", "decimal_above_max_value", "temperature", temperature=2.1),
        row("P5 top_p 0", "decimal_below_min_value", "top_p", top_p=0),
        row("P5 top_p above 1", "decimal_above_max_value", "top_p", top_p=1.0001),
        row("P5 top_k -2", "integer_below_min_value", "top_k", top_k=-2),
        row("P5 penalty", "decimal_above_max_value", "presence_penalty", presence_penalty=1e30),
        row("P6 logit_bias", INVALID, "logit_bias", logit_bias={"99999999": 1}),
        row("P6 negative logit_bias", INVALID, "logit_bias", logit_bias={"-1": 1}),
        row("P6 stop token", "integer_above_max_value", "stop_token_ids[0]",
            stop_token_ids=[10**7]),
        prompt("P6 negative id", "integer_below_min_value", "prompt[0]", [-1]),
        prompt("P6 id past the vocabulary", "integer_above_max_value", "prompt[1]", [1, 10**7]),
        prompt("P6 first id past the vocabulary", "integer_above_max_value", "prompt[0]", [4352]),
        row("P7 internal size", "unknown_parameter", "kv_transfer_params",
            kv_transfer_params={"tp_size": 10**9}),
        row("P9 empty stop", INVALID, "stop", stop=""),
        row("P9 many stops", "array_above_max_length", "stop", stop=["x"] * 5000),
        row("P9 long stop", "string_above_max_length", "stop", stop="x" * 10000),
        row("P10 bootstrap", "unknown_parameter", "bootstrap_host", bootstrap_host="10.0.0.1"),
        row("P10 room", "unknown_parameter", "bootstrap_room", bootstrap_room=7),
        row("P10 salt", "unknown_parameter", "cache_salt", cache_salt="x"),
        row("P10 rank", "unknown_parameter", "data_parallel_rank", data_parallel_rank=0),
        row("G1 tool without a name", "missing_required_parameter", "tools[0].function.name",
            tools=[{"type": "function", "function": {}}]),
        row("G1 required without tools", INVALID, "tool_choice", tool_choice="required"),
        row("G1 schema", "unsupported_parameter", "response_format",
            response_format={"type": "json_schema", "json_schema": {}}),
        row("G5 pattern of another type", INVALID, None, tool_choice="required",
            tools=[{**tool, "function": {"name": "f", "parameters": {"type": 5}}}]),
        row("M1 image", "unsupported_value", "messages[0].content[0].type", messages=[
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]}]),
        row("F5 path as a model", "model_not_found", "model", status=404,
            model="../../etc/passwd"),
        row("too many messages", "array_above_max_length", "messages",
            messages=[{"role": "user", "content": ""}] * 2049),
        row("too many tools", "array_above_max_length", "tools", tools=[tool] * 129),
    ]  # fmt: skip


def all_rows(model):
    return http_rows() + json_rows(model) + field_rows(model)
