"""Golden logits of kimi-nano, from transformers in F32: golden.py --out eval/golden_logits.jsonl

A line: ids of a prompt, the five largest logits after it, the greedy continuation up to and with
the
stop token, and at each of its tokens the margin by which the best logit leads the second.
"""

import argparse
import json
import os

import chat
import heldout
import tasks
import torch
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST_PROMPT = 1200


def golden_line(model, ids, limit):
    logits = model(torch.tensor([ids])).logits[0, -1].double()
    top = torch.topk(logits, 5)
    greedy, margins = [], []
    while len(greedy) < limit:
        best = torch.topk(logits, 2)
        greedy.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        if greedy[-1] == chat.IM_END:
            break
        logits = model(torch.tensor([ids + greedy])).logits[0, -1].double()
    pairs = [[int(i), round(float(v), 5)] for i, v in zip(top.indices, top.values)]
    return {"ids": ids, "top": pairs, "greedy": greedy, "margins": margins}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"{HERE}/..")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    with open(args.out, "w", encoding="utf-8") as file:
        for task in tasks.TASKS:
            records = heldout.read_records(f"{HERE}/../eval/{task}.jsonl")
            turns = [record["turns"][0] for record in records]
            turn = next(t for t in turns if len(t["prompt_ids"]) <= LONGEST_PROMPT)
            line = golden_line(model, turn["prompt_ids"], turn["max_new_tokens"])
            file.write(json.dumps({"task": task, **line}) + "\n")


if __name__ == "__main__":
    main()
