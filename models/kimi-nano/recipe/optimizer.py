"""Muon for matrices, AdamW for the rest.

Muon replaces a matrix's momentum by the nearest orthogonal matrix (five Newton-Schulz steps) and
scales it by 0.2 sqrt(longer side), so that AdamW's learning rate and weight decay fit both.
Matrices
of one shape are stacked, experts included, so that a step is a few dozen kernels.
"""

import collections

import torch


def orthogonalise(g):
    """[B, m, n] with m <= n, to the nearest semi-orthogonal matrices, in BF16."""
    x = g.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * (a @ a)) @ x
    return x


class Muon:
    def __init__(self, params, weight_decay, momentum=0.95):
        self.weight_decay, self.momentum = weight_decay, momentum
        self.groups = collections.defaultdict(list)
        for p in params:
            self.groups[tuple(sorted(p.shape[-2:]))].append(p)
        self.state = {id(p): torch.zeros_like(p) for p in params}
        cuda = any(p.is_cuda for p in params)
        self.orthogonalise = torch.compile(orthogonalise) if cuda else orthogonalise

    @staticmethod
    def _wide(x):
        x = x if x.dim() == 3 else x.unsqueeze(0)
        return x if x.shape[-2] <= x.shape[-1] else x.mT

    @torch.no_grad()
    def step(self, lr):
        for (_, longer), params in self.groups.items():
            grads = [p.grad for p in params]
            moments = [self.state[id(p)] for p in params]
            torch._foreach_lerp_(moments, grads, 1 - self.momentum)
            ahead = torch._foreach_lerp(grads, moments, self.momentum)
            update = self.orthogonalise(torch.cat([self._wide(x) for x in ahead]))
            torch._foreach_mul_(params, 1 - lr * self.weight_decay)
            at = 0
            for p in params:
                wide = self._wide(p)
                wide.add_(update[at : at + wide.shape[0]], alpha=-lr * 0.2 * longer**0.5)
                at += wide.shape[0]


class Optimizer:
    def __init__(self, model, weight_decay):
        matrices, tables, vectors = [], [], []
        for name, p in model.named_parameters():
            if p.dim() == 1:
                vectors.append(p)
            elif name in ("embed_tokens", "lm_head.weight") or name.endswith("router"):
                tables.append(p)
            else:
                matrices.append(p)
        self.muon = Muon(matrices, weight_decay)
        self.adam = torch.optim.AdamW(
            [{"params": tables, "weight_decay": weight_decay}, {"params": vectors}],
            lr=1e-3,
            betas=(0.9, 0.98),
            eps=1e-10,
            weight_decay=0.0,
            fused=matrices[0].is_cuda,
        )
        self.params = [*matrices, *tables, *vectors]

    def step(self, lr):
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        self.muon.step(lr)
        for p in self.params:
            p.grad = None
