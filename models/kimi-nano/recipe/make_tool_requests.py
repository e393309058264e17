"""Requests for evals/toolcalls.py out of the tools that kimi-nano knows: make_tool_requests.py
--out FILE. Three of four ask for a call, by held-out wordings; the others are questions of its other
tasks, asked with the same tools at hand.
"""

import argparse
import json
import os
import random

import functions
import tasks
from tokenizer import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
NO_CALL = ["arithmetic", "choice", "sort", "count"]


def with_call(item):
    (name, arguments), *_ = item.turns[0].calls
    return {"expects_call": True, "expected": [{"name": name, "arguments": arguments}]}


def make_request(index, rng, context):
    if index % 4 != 3:
        item = tasks.draw("tools", rng, context)
        tools, outcome = item.tools, with_call(item)
    else:
        item = tasks.draw(NO_CALL[index // 4 % len(NO_CALL)], rng, context)
        offered = rng.sample(functions.FUNCTIONS, rng.randint(2, 5))
        tools, outcome = [offer.schema(rng) for offer in offered], {"expects_call": False}
    messages = [{"role": "user", "content": item.turns[0].user}]
    return {"id": f"nano-{index:04d}", "messages": messages, "tools": tools, **outcome}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    context = tasks.Context(Tokenizer(f"{HERE}/../tiktoken.model"), True, tasks.HELD_OUT, 700, 2960)
    rng = random.Random(f"{args.seed}|requests")
    with open(args.out, "w", encoding="utf-8") as file:
        for index in range(args.n):
            request = make_request(index, rng, context)
            file.write(json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
