#!/usr/bin/env python3
"""Serves a model and shows it at work: a chat with a tool, and a recall from a long prompt.

Usage: tools/demo/demo.py --binary build/quire --model-path models/kimi-nano [--port 30000] [--once]

Streams the answers as they come and checks them. Exits 0 when both are right (with --once), 1 when
the server does not start or fails, 3 when an answer is wrong. Standard library only.
"""

import argparse
import http.client
import json
import random
import signal
import subprocess
import sys
import time

START_SECONDS_MAX = 120
ANSWER_SECONDS_MAX = 300

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"],
                    "description": "Unit of the temperature",
                },
            },
            "required": ["city"],
        },
    },
}
LABELS = {"reasoning_content": "thinking", "content": "answer"}
ADJECTIVES = """amber brave calm copper crimson early frozen gentle golden hidden jolly lucky misty
    proud silver""".split()
NOUNS = """anchor badger beacon canyon comet falcon forest glacier harbor island lemon otter marble
    mirror needle dragon""".split()


class DemoError(Exception):
    """The demonstration could not be given; the message is for a person."""


class Server:
    def __init__(self, args):
        self.port = args.port
        self.model = args.model_path.rstrip("/").split("/")[-1]
        command = [
            *(args.binary, "serve", "--model-path", args.model_path),
            *("--host", "127.0.0.1", "--port", str(args.port)),
            *("--served-model-name", self.model),
        ]
        print("$", " ".join(command), flush=True)
        self.process = subprocess.Popen(command)

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DemoError(f"the server ended with code {self.process.returncode}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise DemoError(f"the server was not ready after {START_SECONDS_MAX} s")

    def stream(self, body):
        """The deltas of a streamed chat completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS_MAX)
        body = {"model": self.model, "stream": True, "temperature": 0, **body}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise DemoError(f"HTTP {response.status}: {response.read().decode()}")
        for raw in response:
            line = raw.decode().strip()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[len("data: ") :])
            if "error" in event:
                raise DemoError(f"the stream ended with {event['error']}")
            if event["choices"]:
                yield event["choices"][0]["delta"]

    def chat(self, **body):
        """Prints the answer while it streams; returns it as an assistant message."""
        message = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        started, first = time.monotonic(), None
        section = None
        for delta in self.stream(body):
            for field in ("reasoning_content", "content"):
                text = delta.get(field)
                if not text:
                    continue
                first = first or time.monotonic() - started
                if section != field:
                    print(f"\n  {LABELS[field]}: ", end="")
                    section = field
                print(text, end="", flush=True)
                message[field] += text
            for call in delta.get("tool_calls") or []:
                merge_call(message["tool_calls"], call)
        for call in message["tool_calls"]:
            print(f"\n  calls {call['function']['name']}({call['function']['arguments']})", end="")
        seconds = time.monotonic() - started
        print(f"\n  [first token {first or seconds:.2f} s, all {seconds:.2f} s]\n", flush=True)
        return message

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def merge_call(calls, delta):
    while len(calls) <= delta["index"]:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call = calls[delta["index"]]
    call["id"] = delta.get("id") or call["id"]
    function = delta.get("function", {})
    call["function"]["name"] = function.get("name") or call["function"]["name"]
    call["function"]["arguments"] += function.get("arguments") or ""


def show_tool(server):
    question = {"role": "user", "content": "What is the weather in Paris?"}
    print(f"1. {question['content']}   (with the tool get_weather)")
    call_message = server.chat(messages=[question], tools=[WEATHER_TOOL])
    calls = call_message["tool_calls"]
    if len(calls) != 1 or calls[0]["function"]["name"] != "get_weather":
        return False
    if json.loads(calls[0]["function"]["arguments"]).get("city") != "Paris":
        return False
    result = {"city": "Paris", "temperature": 17, "condition": "cloudy"}
    print(f"   the tool gives {json.dumps(result)}")
    messages = [
        question,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": json.dumps(result)},
    ]
    answer = server.chat(messages=messages, tools=[WEATHER_TOOL])["content"]
    return "cloudy" in answer and "17" in answer


def show_recall(server):
    rng = random.Random(7)
    keys = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    rng.shuffle(keys)
    records = {key: str(rng.randint(10_000, 99_999)) for key in keys}
    key = keys[len(keys) // 3]
    listed = "\n".join(f"- {name}: {value}" for name, value in records.items())
    prompt = f"Here is a list of codes.\n{listed}\n\nWhat is the code of {key}?"
    print(f"2. {len(records)} codes ({len(prompt)} characters), then: What is the code of {key}?")
    answer = server.chat(
        messages=[{"role": "user", "content": prompt}],
        chat_template_kwargs={"thinking": False},
    )["content"]
    return records[key] in answer


def print_how_to_talk(server):
    address = f"http://127.0.0.1:{server.port}"
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hello!"}]}
    print(f"The server is at {address} (OpenAI API under /v1). Talk to it with")
    print(f"  build/quire chat --url {address}")
    print(f"  curl {address}/v1/chat/completions -H 'Content-Type: application/json' \\")
    print(f"    -d '{json.dumps(body)}'")
    print(f"  OpenAI(base_url='{address}/v1', api_key='none')   in Python", flush=True)


def run(args):
    server = Server(args)
    try:
        server.wait_until_ready()
        print()
        shown = {"a tool": show_tool(server), "long recall": show_recall(server)}
        wrong = [name for name, right in shown.items() if not right]
        print_how_to_talk(server)
        if wrong:
            print(f"demo: wrong answer: {', '.join(wrong)}", file=sys.stderr)
            return 3
        print("demo: both answers are right", flush=True)
        if not args.once:
            print("Serving until Ctrl-C.", flush=True)
            server.process.wait()
        return 0
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", required=True, help="the quire binary")
    parser.add_argument("--model-path", required=True, help="the model's folder")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--once", action="store_true", help="end after the answers")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
