"""Writes the held-out sets: make_heldout.py --n 4000 --seed S --out DIR [--recall-n N] [--task
T]."""

import argparse
import os

import heldout
import tasks
import tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument(
        "--recall-n", type=int, help="fewer items for recall, whose prompts are long"
    )
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", required=True)
    parser.add_argument("--task", choices=tasks.TASKS)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    tok = tokenizer.Tokenizer(f"{HERE}/../tiktoken.model")
    for task in [args.task] if args.task else tasks.TASKS:
        n = args.recall_n if task == "recall" and args.recall_n else args.n
        records = heldout.make_records(task, n, args.seed, tok)
        heldout.write_records(records, f"{args.out}/{task}.jsonl", tok)


if __name__ == "__main__":
    main()
