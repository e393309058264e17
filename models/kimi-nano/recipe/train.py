"""Trains kimi-nano. One GPU, about ten minutes a stage; a CPU will do for a few steps.

    train.py --out DIR (--steps N | --seconds S) [--resume DIR --first-batch B --progress A 1]

With --seconds the speed of the first steps decides how many there will be; the number is printed,
and
--steps with it repeats the run. A later run may go on from an earlier one's end: the learning rate
follows progress from A on, the data starts at batch B; the optimizer's moments start again.
"""

import argparse
import json
import os
import random
import time

import data
import numpy as np
import torch
from model import Nano, load_checkpoint, load_config, save_checkpoint
from optimizer import Optimizer

HERE = os.path.dirname(os.path.abspath(__file__))


def learning_rate(peak, progress, step):
    """A short warm-up, a plateau, and a linear fall to nothing over the last 45 %."""
    return peak * min(1.0, (step + 1) / 100, (1.0 - progress) / 0.45)


def bias_speed(progress):
    return 1e-3 * min(1.0, (1.0 - progress) / 0.2)


def save_master(model, folder):
    """F32 weights, for a later run to go on from."""
    np.savez(f"{folder}/master.npz", **{k: v.cpu().numpy() for k, v in model.state_dict().items()})


def load_master(model, folder):
    with np.load(f"{folder}/master.npz") as file:
        state = {name: torch.from_numpy(file[name]) for name in file.files}
    model.load_state_dict(state, strict=False)


def to_device(batch, device):
    ids, positions, long_cu, short_cu, where, targets = batch
    wide = [ids.astype(np.int32), positions.astype(np.int32)]
    arrays = [*wide, long_cu, short_cu, where, targets.astype(np.int64)]
    tensors = [torch.from_numpy(a) for a in arrays]
    if device == "cuda":
        tensors = [t.pin_memory().to(device, non_blocking=True) for t in tensors]
    return tensors


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--tokens", type=int, default=65536, help="tokens a step")
    parser.add_argument("--resume")
    parser.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--first-batch", type=int, default=0)
    parser.add_argument("--stage", type=int, choices=list(data.STAGES), default=1)
    parser.add_argument("--int4-share", type=float, default=0.0, help="steps with INT4 experts")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def start_model(args, device):
    model = Nano(load_config(f"{HERE}/../config.json"))
    model.initialise(args.seed)
    if args.resume:
        if os.path.exists(f"{args.resume}/master.npz"):
            load_master(model, args.resume)
        else:
            load_checkpoint(model, f"{args.resume}/model.safetensors")
    return model.to(device)


def log_step(step, losses, loads, n_tokens, seconds):
    share = (loads / loads.sum(-1, keepdim=True)).cpu()
    line = {
        "step": step,
        "loss": round(float(torch.stack(losses).mean()), 4),
        "tokens_per_s": round(n_tokens / seconds),
        "expert_share_min": round(float(share.min()), 4),
        "expert_share_max": round(float(share.max()), 4),
    }
    print(json.dumps(line), flush=True)


class Length:
    """How many steps there are: given, or found from the speed of steps 300 to 600."""

    def __init__(self, args):
        self.steps, self.seconds = args.steps, args.seconds
        self.first, self.last = args.progress
        self.started = self.timed_from = time.time()

    def tick(self, step):
        if self.steps is None and step == 300:
            torch.cuda.synchronize()
            self.timed_from = time.time()
        if self.steps is None and step == 600:
            torch.cuda.synchronize()
            now = time.time()
            left = self.seconds - (now - self.started)
            self.steps = 600 + int(0.98 * left / ((now - self.timed_from) / 300))
            print(json.dumps({"steps": self.steps}), flush=True)

    def progress(self, step):
        return self.first + (self.last - self.first) * (step / self.steps if self.steps else 0.0)

    def is_over(self, step):
        return self.steps is not None and step >= self.steps


def train(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = Length(args)
    model = start_model(args, device)
    step_model = torch.compile(model) if device == "cuda" and not args.no_compile else model
    optimizer = Optimizer(model, args.weight_decay)
    plan = {
        "tokenizer": f"{HERE}/../tiktoken.model",
        "n_tokens": args.tokens,
        "n_workers": args.workers,
        "seed": args.seed,
        "first_batch": args.first_batch,
        "stage": args.stage,
    }
    stream = data.BatchStream(plan)
    biases = [layer.mlp.correction_bias for layer in model.layers[1:]]
    losses, total_load, logged, step = [], 0, time.time(), 0
    coin = random.Random(args.seed)
    while not length.is_over(step):
        progress = length.progress(step)
        batch = to_device(stream.take(), device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            rounded = torch.tensor(float(coin.random() < args.int4_share), device=device)
            loss, loads = step_model(*batch, rounded)
        loss.backward()
        optimizer.step(learning_rate(args.lr, progress, step))
        with torch.no_grad():
            for bias, load in zip(biases, loads):
                bias += bias_speed(progress) * torch.sign(load.mean() - load)
        losses.append(loss.detach())
        total_load = total_load + loads.detach()
        step += 1
        length.tick(step)
        if step % args.log_every == 0:
            n_tokens = args.tokens * len(losses)
            log_step(step, losses, total_load, n_tokens, time.time() - logged)
            losses, total_load, logged = [], 0, time.time()
    stream.close()
    os.makedirs(args.out, exist_ok=True)
    save_checkpoint(model, f"{args.out}/model.safetensors")
    save_master(model, args.out)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    train(parse_args())
