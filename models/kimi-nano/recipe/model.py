"""kimi-nano for training: DeepSeek-V3's blocks over packed documents, and its checkpoint on disk.

Documents lie one after the other in one row of tokens; `cu` holds their boundaries and attention
never
crosses one. All experts are computed for every token and the weights of those not chosen are zero:
at this size one wide matrix product is faster than a grouped one, and the mathematics is the same.
"""

import json
import math
import struct

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # Only the CUDA path needs it; inference and the CPU do not.
    varlen_attn = None

# Bounds on documents in the two parts of a batch; attention kernels need them, packing keeps them.
LONGEST_DOCUMENT = 3328
LONGEST_SHORT = 896


def load_config(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def yarn_inv_freq(config):
    """Frequencies of the 32 pairs: interpolated where slow, kept where fast, a ramp between."""
    scaling, dim = config["rope_scaling"], config["qk_rope_head_dim"]
    theta, original = config["rope_theta"], scaling["original_max_position_embeddings"]

    def pair_with_turns(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with_turns(scaling["beta_fast"])), 0)
    high = min(math.ceil(pair_with_turns(scaling["beta_slow"])), dim - 1)
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    inv = theta ** (-2.0 * pairs / dim)
    ramp = ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    return (inv / scaling["factor"] * ramp + inv * (1 - ramp)).float()


def softmax_scale(config):
    """(nope + rope)^-1/2 times the square of yarn's m."""
    scaling = config["rope_scaling"]
    m = 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1.0
    return (config["qk_nope_head_dim"] + config["qk_rope_head_dim"]) ** -0.5 * m * m


def rotate_pairs(x, cos, sin):
    """Rope over interleaved pairs. x: [..., 64]; cos, sin: broadcast to [..., 32]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).to(x.dtype)


def rms_norm(x, weight, eps=1e-6):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight).to(x.dtype)


def packed_attention(q, k, v, cu, longest, scale):
    """Causal attention inside documents. q, k: [T, H, D]; v: [T, H, Dv]; cu: [N + 1]."""
    if q.is_cuda:
        q = q * (scale * math.sqrt(q.shape[-1]))
        wide = F.pad(v, (0, q.shape[-1] - v.shape[-1]))
        out = varlen_attn(q, k, wide, cu, cu, longest, longest, window_size=(-1, 0))
        return out[..., : v.shape[-1]]
    where = torch.arange(q.shape[0])
    document = torch.searchsorted(cu, where.to(cu.dtype), right=True)
    mask = (document[:, None] == document[None]) & (where[:, None] >= where[None])
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out[0].transpose(0, 1)


def two_part_attention(q, k, v, parts, scale):
    """The long part of a batch, then the short part. parts: (tokens, boundaries, longest) of
    each."""
    outs, begin = [], 0
    for n_tokens, cu, longest in parts:
        end = begin + n_tokens
        outs.append(packed_attention(q[begin:end], k[begin:end], v[begin:end], cu, longest, scale))
        begin = end
    return torch.cat(outs)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, r, q = c["hidden_size"], c["kv_lora_rank"], c["q_lora_rank"]
        self.heads, self.scale = c["num_attention_heads"], softmax_scale(c)
        self.nope, self.rope, self.value = (
            c["qk_nope_head_dim"],
            c["qk_rope_head_dim"],
            c["v_head_dim"],
        )
        self.q_a_proj = nn.Linear(h, q, bias=False)
        self.q_a_layernorm = nn.Parameter(torch.ones(q))
        self.q_b_proj = nn.Linear(q, self.heads * (self.nope + self.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(h, r + self.rope, bias=False)
        self.kv_a_layernorm = nn.Parameter(torch.ones(r))
        self.kv_b_proj = nn.Linear(r, self.heads * (self.nope + self.value), bias=False)
        self.o_proj = nn.Linear(self.heads * self.value, h, bias=False)

    def queries(self, x, cos, sin):
        """[T, H, nope + rope], the rope part turned."""
        q = self.q_b_proj(rms_norm(self.q_a_proj(x), self.q_a_layernorm))
        q = q.unflatten(-1, (self.heads, self.nope + self.rope))
        turned = rotate_pairs(q[..., self.nope :], cos.unsqueeze(-2), sin.unsqueeze(-2))
        return torch.cat([q[..., : self.nope], turned], dim=-1)

    def latents(self, x, cos, sin):
        """What the cache keeps of a token: the normed latent [T, 512] and its turned key [T,
        64]."""
        kv = self.kv_a_proj_with_mqa(x)
        latent = rms_norm(kv[..., : -self.rope], self.kv_a_layernorm)
        return latent, rotate_pairs(kv[..., -self.rope :], cos, sin)

    def forward(self, x, cos, sin, parts):
        q = self.queries(x, cos, sin)
        latent, turned = self.latents(x, cos, sin)
        kv = self.kv_b_proj(latent).unflatten(-1, (self.heads, self.nope + self.value))
        key = torch.cat(
            [kv[..., : self.nope], turned.unsqueeze(-2).expand(-1, self.heads, -1)], dim=-1
        )
        out = two_part_attention(q, key, kv[..., self.nope :], parts, self.scale)
        return self.o_proj(out.flatten(-2))


class Mlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def through_int4(weight, rounded):
    """The weight, or (rounded = 1) its INT4 image in groups of 32; the gradient passes
    unchanged."""
    if rounded is None:
        return weight
    groups = weight.detach().unflatten(-1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 7.5
    image = (torch.round(groups / scale).clamp(-8, 7) * scale).flatten(-2)
    return weight + rounded * (image - weight.detach())


class Moe(nn.Module):
    """Sigmoid routing with a correction bias that only the choice sees; one shared expert."""

    def __init__(self, c):
        super().__init__()
        h, inner, n = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
        self.top_k, self.factor = c["num_experts_per_tok"], c["routed_scaling_factor"]
        self.router = nn.Parameter(torch.empty(n, h))
        self.register_buffer("correction_bias", torch.zeros(n))
        self.gate = nn.Parameter(torch.empty(n, inner, h))
        self.up = nn.Parameter(torch.empty(n, inner, h))
        self.down = nn.Parameter(torch.empty(n, h, inner))
        self.shared_experts = Mlp(h, inner * c["n_shared_experts"])

    def route(self, x):
        """Weights [T, E], zero where an expert is not chosen, and the load [E] of this batch."""
        with torch.autocast(x.device.type, enabled=False):
            scores = torch.sigmoid(x.float() @ self.router.float().t())
        choice = scores.detach() + self.correction_bias
        floor = choice.topk(self.top_k, dim=-1).values[..., -1:]
        chosen = (choice >= floor).to(scores.dtype)
        weights = scores * chosen
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.factor
        return weights, chosen.flatten(0, -2).sum(0)

    def forward(self, x, rounded=None):
        weights, load = self.route(x)
        gate, up, down = (through_int4(w, rounded) for w in (self.gate, self.up, self.down))
        inner = F.silu(F.linear(x, gate.flatten(0, 1))) * F.linear(x, up.flatten(0, 1))
        inner = inner.unflatten(-1, (gate.shape[0], -1)) * weights.unsqueeze(-1).to(x.dtype)
        down = down.permute(1, 0, 2).flatten(1)
        return F.linear(inner.flatten(-2), down) + self.shared_experts(x), load


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = nn.Parameter(torch.ones(c["hidden_size"]))
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.Parameter(torch.ones(c["hidden_size"]))
        dense = index < c["first_k_dense_replace"]
        self.mlp = Mlp(c["hidden_size"], c["intermediate_size"]) if dense else Moe(c)

    def feed_forward(self, x, rounded=None):
        x = rms_norm(x, self.post_attention_layernorm)
        return self.mlp(x, rounded) if isinstance(self.mlp, Moe) else (self.mlp(x), None)

    def forward(self, x, cos, sin, parts, rounded):
        x = x + self.self_attn(rms_norm(x, self.input_layernorm), cos, sin, parts)
        y, load = self.feed_forward(x, rounded)
        return x + y, load


class Nano(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Parameter(torch.empty(c["vocab_size"], c["hidden_size"]))
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(c["hidden_size"]))
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        self.register_buffer("inv_freq", yarn_inv_freq(c), persistent=False)

    @torch.no_grad()
    def initialise(self, seed):
        """Normal, by fan-in; what writes to the residual stream starts at zero but for
        attention."""
        rng = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0)
                continue
            std = 0.4 if name == "embed_tokens" else 0.6 * p.shape[-1] ** -0.5
            if "down" in name or name == "lm_head.weight":
                std *= 0.1
            p.copy_(torch.randn(p.shape, generator=rng) * std)

    def rope(self, positions):
        angles = positions.float().unsqueeze(-1) * self.inv_freq
        return angles.cos(), angles.sin()

    def forward(self, ids, positions, long_cu, short_cu, where, targets, rounded):
        """Mean loss over the targets (-100: none) at the places `where`, and the expert loads.

        rounded: a scalar, 1 to compute with experts as INT4 would give them back, 0 without."""
        cos, sin = self.rope(positions)
        x = F.embedding(ids, self.embed_tokens).to(torch.bfloat16 if ids.is_cuda else torch.float32)
        n_long = ids.shape[0] // 4
        parts = [(n_long, long_cu, LONGEST_DOCUMENT), (3 * n_long, short_cu, LONGEST_SHORT)]
        loads = []
        for layer in self.layers:
            x, load = layer(x, cos, sin, parts, rounded)
            if load is not None:
                loads.append(load)
        x = rms_norm(x.index_select(0, where), self.norm)
        loss = F.cross_entropy(self.lm_head(x).float(), targets, ignore_index=-100)
        return loss, torch.stack(loads)


def hf_tensors(model):
    """(name on disk, tensor) in the layout of DeepseekV3ForCausalLM; bias in F32, the rest BF16."""
    yield "model.embed_tokens.weight", model.embed_tokens
    for i, layer in enumerate(model.layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", layer.input_layernorm
        yield p + "post_attention_layernorm.weight", layer.post_attention_layernorm
        for name, value in layer.self_attn.named_parameters():
            yield p + "self_attn." + name.removesuffix(".weight") + ".weight", value
        if isinstance(layer.mlp, Mlp):
            for name, value in layer.mlp.named_parameters():
                yield p + "mlp." + name, value
            continue
        yield p + "mlp.gate.weight", layer.mlp.router
        yield p + "mlp.gate.e_score_correction_bias", layer.mlp.correction_bias
        for name, value in layer.mlp.shared_experts.named_parameters():
            yield p + "mlp.shared_experts." + name, value
        for e in range(layer.mlp.gate.shape[0]):
            yield p + f"mlp.experts.{e}.gate_proj.weight", layer.mlp.gate[e]
            yield p + f"mlp.experts.{e}.up_proj.weight", layer.mlp.up[e]
            yield p + f"mlp.experts.{e}.down_proj.weight", layer.mlp.down[e]
    yield "model.norm.weight", model.norm
    yield "lm_head.weight", model.lm_head.weight


def disk_dtype(name):
    return torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16


def save_checkpoint(model, path):
    """One safetensors file; written by hand so that only numpy is needed and bytes are stable."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, value in sorted(hf_tensors(model)):
        tensor = value.detach().to("cpu", disk_dtype(name)).contiguous()
        data = tensor.view(torch.uint8).numpy().tobytes()
        kind = "F32" if tensor.dtype == torch.float32 else "BF16"
        end = offset + len(data)
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        blobs.append(data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


@torch.no_grad()
def load_checkpoint(model, path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    for name, value in hf_tensors(model):
        entry = header[name]
        begin, end = entry["data_offsets"]
        raw = torch.from_numpy(np.frombuffer(data[begin:end], np.uint8).copy())
        value.copy_(raw.view(disk_dtype(name)).reshape(entry["shape"]))
