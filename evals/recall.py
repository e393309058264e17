#!/usr/bin/env python3
"""Long-context recall by depth: one record of a long list is asked for, and where in the list it
stands is varied. Deterministic by seed, so that two runs pair item by item.

  evals/recall.py --base-url http://127.0.0.1:30000 --lines 50,150 --per-depth 20 --out bf16.json
"""

import argparse
import json
import random
import sys

import report
import server

ADJECTIVES = """amber bold calm deep empty frozen golden hidden icy jolly kind lazy misty noisy pale
quick rusty silent""".split()
NOUNS = """anchor badger candle dragon eagle falcon garden hammer island jacket kettle lantern maple
needle ocean bridge""".split()


def make_item(lines, depth, rng):
    """A list of `lines` records and a question about the one at `depth`, 0 to 1."""
    keys = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    if lines > len(keys):
        keys = [f"{first} {second}" for first in keys for second in NOUNS]
    chosen = rng.sample(keys, lines)
    values = rng.sample(range(10000, 100000), lines)
    asked = min(lines - 1, round(depth * (lines - 1)))
    records = "\n".join(f"- {key}: {value}" for key, value in zip(chosen, values))
    text = f"Here is a list of codes.\n{records}\n\nWhat is the code of {chosen[asked]}?"
    return text, str(values[asked])


def make_items(args):
    items = []
    for lines in args.lines:
        for step in range(args.depths):
            depth = step / max(1, args.depths - 1)
            for i in range(args.per_depth):
                rng = random.Random(f"{args.seed}|{lines}|{step}|{i}")
                text, value = make_item(lines, depth, rng)
                items.append(
                    {
                        "id": f"{lines}-{step}-{i}",
                        "task": f"recall@{round(100 * depth)}%",
                        "text": text,
                        "value": value,
                    }
                )
    return items


def ask(target, item, args):
    kwargs = args.chat_template_kwargs
    fields = {"chat_template_kwargs": kwargs} if kwargs else {}
    choice = target.chat(
        messages=[{"role": "user", "content": item["text"]}],
        temperature=0,
        max_tokens=args.max_tokens,
        **fields,
    )
    return item["value"] in (choice["message"]["content"] or "")


def run(args):
    target = server.server_of(args)
    items = make_items(args)
    right = server.each(lambda item: ask(target, item, args), items, args.concurrency, "recall")
    by_task = {}
    for item, is_right in zip(items, right):
        by_task.setdefault(item["task"], []).append((item["id"], is_right))
    tasks = [report.task_report(task, pairs) for task, pairs in by_task.items()]
    return {"model": target.model, "eval": "recall", "lines": args.lines, "tasks": tasks}


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server.add_server_flags(parser)
    report.add_report_flags(parser)
    parser.add_argument(
        "--lines",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[50],
        help="records a list, about 13 tokens each: several lengths by commas",
    )
    parser.add_argument("--depths", type=int, default=5, help="places, from 0 to 100 %% of it")
    parser.add_argument("--per-depth", type=int, default=20, help="items a length and depth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument(
        "--chat-template-kwargs",
        type=json.loads,
        help='JSON for the server\'s chat template, such as {"thinking": false}',
    )
    args = parser.parse_args(argv)
    longest = len(ADJECTIVES) * len(NOUNS) ** 2
    if not all(2 <= lines <= longest for lines in args.lines):
        parser.error(f"--lines: expected 2 to {longest}")
    if min(args.depths, args.per_depth, args.concurrency) < 1:
        parser.error("--depths, --per-depth and --concurrency: expected at least 1")
    return args


def main(argv=None):
    args = parse(argv)
    try:
        return report.finish(run(args), args)
    except (server.ServerError, OSError) as error:
        return report.fail(error)


if __name__ == "__main__":
    sys.exit(main())
