"""Held-out accuracy of a checkpoint in this recipe's own PyTorch, with lower precisions simulated.

    evaluate.py --model DIR [--n 4000] [--configs bf16 fp8-kv ...] [--modes]

A config is a weight format of quantize.py and a KV format: what the cache keeps of each token (the
latent and the turned key) is rounded before attention reads it, the current token's included.
"""

import argparse
import json
import os
import time

import chat
import heldout
import numpy as np
import quantize
import tasks
import tokenizer
import torch
import torch.nn.functional as F
from model import Nano, hf_tensors, load_checkpoint, load_config, rms_norm

HERE = os.path.dirname(os.path.abspath(__file__))
# name: (weights, KV). The last two are there to lose.
CONFIGS = {
    "bf16": ("bf16", "bf16"),
    "fp8-kv": ("bf16", "e4m3"),
    "fp8-weights": ("fp8", "bf16"),
    "int4-g32": ("int4-g32", "bf16"),
    "int4-g128": ("int4-g128", "bf16"),
    "int3-control": ("int3-control", "bf16"),
    "e4m1-kv-control": ("bf16", "e4m1"),
}


def round_rows(x, mantissa_bits):
    """Each row to e4m3 (or e4m1) with the row's scale amax / 448, or 1 for a row of zeros."""
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True) / 448.0
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    y = wide / scale
    exponent = torch.floor(torch.log2(y.abs().clamp_min(2.0**-6)))
    step = torch.exp2(exponent - mantissa_bits)
    largest = (2.0 - 2.0**-mantissa_bits) * 256.0 if mantissa_bits < 3 else 448.0
    return (torch.round(y / step) * step).clamp(-largest, largest) * scale


def round_kv(x, kv):
    if kv == "bf16":
        return x
    return round_rows(x, {"e4m3": 3, "e4m1": 1}[kv]).to(x.dtype)


class Runner:
    """Greedy decoding of a padded batch with a latent cache."""

    def __init__(self, model, kv, dtype):
        self.model, self.kv, self.dtype = model, kv, dtype

    def _kept(self, attention, x, cos, sin):
        latent, turned = attention.latents(x, cos, sin)
        return round_kv(latent, self.kv), round_kv(turned, self.kv)

    def prefill(self, ids, room):
        """ids: [B, L]. Returns hidden states [B, L, H] and a cache with room for more tokens."""
        model, cache = self.model, []
        cos, sin = model.rope(torch.arange(ids.shape[1], device=ids.device))
        x = F.embedding(ids, model.embed_tokens).to(self.dtype)
        for layer in model.layers:
            a = layer.self_attn
            h = rms_norm(x, layer.input_layernorm)
            q = a.queries(h, cos, sin)
            latent, turned = self._kept(a, h, cos, sin)
            kv = a.kv_b_proj(latent).unflatten(-1, (a.heads, a.nope + a.value))
            shared = turned.unsqueeze(-2).expand(-1, -1, a.heads, -1)
            k = torch.cat([kv[..., : a.nope], shared], dim=-1)
            v = F.pad(kv[..., a.nope :], (0, a.nope + a.rope - a.value))
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=a.scale)
            out = out[..., : a.value].transpose(1, 2).flatten(-2)
            x = x + a.o_proj(out)
            x = x + layer.feed_forward(x)[0]
            cache.append(tuple(F.pad(t, (0, 0, 0, room)) for t in (latent, turned)))
        return x, cache

    def decode(self, ids, positions, cache):
        """One token a row, [B], at its own position. Returns hidden states [B, H]."""
        model = self.model
        cos, sin = model.rope(positions)
        rows = torch.arange(len(ids), device=ids.device)
        x = F.embedding(ids, model.embed_tokens).to(self.dtype)
        for layer, (latents, keys) in zip(model.layers, cache):
            a = layer.self_attn
            h = rms_norm(x, layer.input_layernorm)
            q = a.queries(h, cos, sin)
            latents[rows, positions], keys[rows, positions] = self._kept(a, h, cos, sin)
            w = a.kv_b_proj.weight.unflatten(0, (a.heads, a.nope + a.value)).to(self.dtype)
            q_latent = torch.einsum("bhn,hnr->bhr", q[..., : a.nope], w[:, : a.nope])
            score = q_latent @ latents.mT + q[..., a.nope :] @ keys.mT
            seen = torch.arange(latents.shape[1], device=ids.device) <= positions[:, None]
            score = (score.float() * a.scale).masked_fill(~seen[:, None], float("-inf"))
            mixed = torch.softmax(score, -1).to(self.dtype) @ latents
            out = torch.einsum("bhr,hvr->bhv", mixed, w[:, a.nope :])
            x = x + a.o_proj(out.flatten(-2))
            x = x + layer.feed_forward(x)[0]
        return x

    def _pick(self, x):
        return self.model.lm_head(rms_norm(x, self.model.norm)).float().argmax(-1)

    @torch.no_grad()
    def generate(self, prompts, limits):
        """Lists of generated ids, up to and with the stop token."""
        device = self.model.norm.device
        lengths = torch.tensor([len(p) for p in prompts], device=device)
        padded = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long)
        for i, p in enumerate(prompts):
            padded[i, : len(p)] = torch.tensor(p)
        room = max(limits)
        x, cache = self.prefill(padded.to(device), room)
        token = self._pick(x[torch.arange(len(prompts), device=device), lengths - 1])
        steps, done = [token], token == chat.IM_END
        for step in range(room - 1):
            if step % 8 == 0 and bool(done.all()):
                break
            token = self._pick(self.decode(token, lengths + step, cache))
            steps.append(token)
            done |= token == chat.IM_END
        table = torch.stack(steps, 1).tolist()
        return [cut(row[:limit]) for row, limit in zip(table, limits)]


def cut(ids):
    return ids[: ids.index(chat.IM_END) + 1] if chat.IM_END in ids else ids


def batches(order, lengths, budget):
    """Indices in order of length, as many together as the budget of padded tokens allows."""
    batch = []
    for i in order:
        if batch and (len(batch) + 1) * (lengths[i] + 64) > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def run_records(runner, records, budget):
    """Whether each item is right."""
    contexts = [[] for _ in records]
    right = [True] * len(records)
    for turn in range(max(len(r["turns"]) for r in records)):
        live = [i for i, r in enumerate(records) if turn < len(r["turns"])]
        for i in live:
            contexts[i] = contexts[i] + records[i]["turns"][turn]["prompt_ids"]
        lengths = {i: len(contexts[i]) for i in live}
        for batch in batches(sorted(live, key=lengths.get), lengths, budget):
            limits = [records[i]["turns"][turn]["max_new_tokens"] for i in batch]
            for i, out in zip(batch, runner.generate([contexts[i] for i in batch], limits)):
                expected = records[i]["turns"][turn]["expected_ids"]
                right[i] = right[i] and heldout.is_right(out, expected)
                contexts[i] = contexts[i] + out
    return right


@torch.no_grad()
def requantised(model_dir, form, device, dtype):
    """The checkpoint's model with every weight replaced by what `form` gives back."""
    model = Nano(load_config(f"{HERE}/../config.json"))
    load_checkpoint(model, f"{model_dir}/model.safetensors")
    for name, value in hf_tensors(model):
        if value.dim() == 2 and form != "bf16":
            weight = quantize.dequantised(name, value.float().numpy(), form)
            value.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
    biases = [layer.mlp.correction_bias.clone() for layer in model.layers[1:]]
    inv_freq = model.inv_freq.clone()
    model.to(device, dtype)
    for layer, bias in zip(model.layers[1:], biases):
        layer.mlp.correction_bias = bias.to(device)
    model.inv_freq = inv_freq.to(device)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"{HERE}/..")
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--recall-n", type=int, help="fewer items for recall, whose prompts are long")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--configs", nargs="+", choices=list(CONFIGS), default=list(CONFIGS))
    parser.add_argument("--tasks", nargs="+", choices=tasks.TASKS, default=tasks.TASKS)
    parser.add_argument("--sets", help="a folder of held-out files, in place of drawing them")
    parser.add_argument(
        "--items", help="a file for which items were right, a line a config and task"
    )
    parser.add_argument("--modes", action="store_true", help="also the other thinking mode")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype, budget = (torch.bfloat16, 500_000) if device == "cuda" else (torch.float32, 20_000)
    tok = tokenizer.Tokenizer(f"{HERE}/../tiktoken.model")
    sets = {}
    for task in args.tasks:
        if args.sets:
            sets[task] = heldout.read_records(f"{args.sets}/{task}.jsonl")[: args.n]
            continue
        n = args.recall_n if task == "recall" and args.recall_n else args.n
        sets[task] = heldout.make_records(task, n, args.seed, tok)
        if args.modes:
            other = not tasks.EVAL_THINKING[task]
            sets[task + "/other"] = heldout.make_records(task, n, args.seed, tok, other)
    for config in args.configs:
        weights, kv = CONFIGS[config]
        started = time.time()
        runner = Runner(requantised(args.model, weights, device, dtype), kv, dtype)
        rows = []
        for task, records in sets.items():
            right = run_records(runner, records, budget)
            n_right = sum(right)
            interval = heldout.interval95(n_right, len(records))
            share = round(n_right / len(records), 4)
            if args.items:
                with open(args.items, "a", encoding="utf-8") as file:
                    line = {
                        "config": config,
                        "task": task,
                        "right": "".join("01"[r] for r in right),
                    }
                    file.write(json.dumps(line) + "\n")
            rows.append({"task": task, "n": len(records), "accuracy": share, "ci95": interval})
        seconds = round(time.time() - started, 1)
        line = {
            "model": "kimi-nano",
            "kv": kv,
            "weights": weights,
            "tasks": rows,
            "seconds": seconds,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
