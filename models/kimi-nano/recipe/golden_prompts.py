"""Log-probabilities of prompts, from transformers: golden_prompts.py --out FILE

A line: a task, the ids of a prompt, and for each of its tokens after the first its log-probability
in F32 and in BF16 (how far rounding alone moves it, where a router's choice is close), and in F32
that of the likeliest token in its place.
"""

import argparse
import json
import os

import heldout
import tasks
import torch
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST_PROMPT = 1200


def rounded(values):
    return [round(float(value), 4) for value in values]


def distributions(model, ids):
    return torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].double(), dim=-1)


def scored_line(exact, coarse, ids):
    places = torch.tensor(ids[1:])[:, None]
    logprobs = distributions(exact, ids)
    return {
        "ids": ids,
        "logprobs": rounded(logprobs.gather(1, places)[:, 0]),
        "bf16": rounded(distributions(coarse, ids).gather(1, places)[:, 0]),
        "best": rounded(logprobs.max(dim=-1).values),
    }


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"{HERE}/..")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    exact, coarse = (
        AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    with open(args.out, "w", encoding="utf-8") as file:
        for task in tasks.TASKS:
            records = heldout.read_records(f"{HERE}/../eval/{task}.jsonl")
            turns = [record["turns"][0] for record in records]
            turn = next(t for t in turns if len(t["prompt_ids"]) <= LONGEST_PROMPT)
            line = scored_line(exact, coarse, turn["prompt_ids"] + turn["expected_ids"])
            file.write(json.dumps({"task": task, **line}) + "\n")


if __name__ == "__main__":
    main()
