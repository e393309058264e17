"""The committed held-out items through transformers: the same lines of JSON as `quire eval`.

    eval_transformers.py [--model DIR] [--sets DIR] [--n N] [--float32] [--items FILE]

Greedy, batched by length. --items writes one line an item: its id and whether it was right, so that
two engines can be compared item by item.
"""

import argparse
import json
import os

import chat
import evaluate
import heldout
import tasks
import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

HERE = os.path.dirname(os.path.abspath(__file__))


class TransformersRunner:
    """Has evaluate.Runner's generate, made of a transformers model."""

    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def generate(self, prompts, limits):
        """Prompts are padded on the left; positions count real tokens only."""
        longest = max(map(len, prompts))
        device = self.model.device
        ids = torch.zeros(len(prompts), longest, dtype=torch.long, device=device)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            ids[i, longest - len(prompt) :] = torch.tensor(prompt, device=device)
            mask[i, longest - len(prompt) :] = 1
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        cache, steps = DynamicCache(config=self.model.config), []
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        for _ in range(max(limits)):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
            token = out.logits[:, -1].float().argmax(-1)
            steps.append(token)
            done |= token == chat.IM_END
            if bool(done.all()):
                break
            ids, positions = token[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
        table = torch.stack(steps, 1).tolist()
        return [evaluate.cut(row[:limit]) for row, limit in zip(table, limits)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"{HERE}/..")
    parser.add_argument("--sets", default=f"{HERE}/../eval")
    parser.add_argument("--tasks", nargs="+", choices=tasks.TASKS, default=tasks.TASKS)
    parser.add_argument("--n", type=int, default=1 << 30)
    parser.add_argument("--float32", action="store_true", help="compute in F32 in place of BF16")
    parser.add_argument("--budget", type=int, default=16_000, help="padded tokens a batch")
    parser.add_argument("--items")
    args = parser.parse_args()
    dtype = torch.float32 if args.float32 else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    runner, rows, judged = TransformersRunner(model), [], []
    for task in args.tasks:
        records = heldout.read_records(f"{args.sets}/{task}.jsonl")[: args.n]
        right = evaluate.run_records(runner, records, args.budget)
        judged += [{"id": r["id"], "right": ok} for r, ok in zip(records, right)]
        n, n_right = len(records), sum(right)
        interval = heldout.interval95(n_right, n)
        rows.append({"task": task, "n": n, "accuracy": round(n_right / n, 4), "ci95": interval})
    print(json.dumps({"model": "kimi-nano", "kv": "bf16", "weights": "bf16", "tasks": rows}))
    if args.items:
        with open(args.items, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in judged)


if __name__ == "__main__":
    main()
