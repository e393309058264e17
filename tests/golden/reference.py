"""The forward pass in float64, in numpy: what transformers cannot give a golden for.

transformers fixes the epsilon of the two latent norms at 1e-6, whatever config.json says; engines
follow the config. This reference does what the config says, from the same weights.
"""

import math

import numpy as np


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def rope_frequencies(config):
    dim = config["qk_rope_head_dim"]
    theta = config["rope_theta"]
    frequencies = theta ** (-np.arange(0, dim, 2) / dim)
    yarn = config.get("rope_scaling")
    if yarn is None:
        return frequencies

    def pair_of(rotations):
        turns = yarn["original_max_position_embeddings"] / (rotations * 2 * math.pi)
        return dim * math.log(turns) / (2 * math.log(theta))

    low = max(math.floor(pair_of(yarn["beta_fast"])), 0)
    high = min(math.ceil(pair_of(yarn["beta_slow"])), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    return frequencies / yarn["factor"] * ramp + frequencies * (1 - ramp)


def rotate(x, angles):
    """Pairs (2i, 2i + 1) of the last axis; `angles` is broadcast over heads."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = np.cos(angles), np.sin(angles)
    out = np.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = odd * cos + even * sin
    return out


def attention(config, weights, prefix, x, eps):
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    rope, v_dim, lora = config["qk_rope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
    n = len(x)
    if config["q_lora_rank"] is None:
        q = x @ weights[prefix + "q_proj.weight"].T
    else:
        q = x @ weights[prefix + "q_a_proj.weight"].T
        q = rms_norm(q, weights[prefix + "q_a_layernorm.weight"], eps)
        q = q @ weights[prefix + "q_b_proj.weight"].T
    q = q.reshape(n, heads, nope + rope)
    kv = x @ weights[prefix + "kv_a_proj_with_mqa.weight"].T
    latent = rms_norm(kv[:, :lora], weights[prefix + "kv_a_layernorm.weight"], eps)
    kv_b = weights[prefix + "kv_b_proj.weight"].reshape(heads, nope + v_dim, lora)
    k_nope = np.einsum("hdc,tc->thd", kv_b[:, :nope], latent)
    value = np.einsum("hvc,tc->thv", kv_b[:, nope:], latent)

    angles = np.arange(n)[:, None] * rope_frequencies(config)[None, :]
    q_rope = rotate(q[..., nope:], angles[:, None, :])
    k_rope = rotate(kv[:, lora:], angles)
    scale = (nope + rope) ** -0.5
    yarn = config.get("rope_scaling")
    if yarn is not None and yarn["factor"] > 1:
        scale *= (0.1 * yarn["mscale_all_dim"] * math.log(yarn["factor"]) + 1) ** 2
    scores = np.einsum("thd,shd->hts", q[..., :nope], k_nope)
    scores = (scores + np.einsum("thd,sd->hts", q_rope, k_rope)) * scale
    scores = np.where(np.tril(np.ones((n, n), bool))[None], scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    out = np.einsum("hts,shv->thv", p, value).reshape(n, heads * v_dim)
    return out @ weights[prefix + "o_proj.weight"].T


def gated_mlp(weights, prefix, x):
    gate = x @ weights[prefix + "gate_proj.weight"].T
    up = x @ weights[prefix + "up_proj.weight"].T
    return (silu(gate) * up) @ weights[prefix + "down_proj.weight"].T


def mixture(config, weights, prefix, x, margins):
    scores = 1 / (1 + np.exp(-(x @ weights[prefix + "gate.weight"].T)))
    choice = scores + weights[prefix + "gate.e_score_correction_bias"]
    top_k = config["num_experts_per_tok"]
    order = np.argsort(-choice, axis=-1, kind="stable")
    ranked = np.take_along_axis(choice, order, axis=-1)
    margins.append(ranked[:, top_k - 1] - ranked[:, top_k])
    chosen = order[:, :top_k]
    share = np.take_along_axis(scores, chosen, axis=-1)
    if config["norm_topk_prob"]:
        share = share / (share.sum(axis=-1, keepdims=True) + 1e-20)
    share = share * config["routed_scaling_factor"]
    out = np.zeros_like(x)
    for expert in range(config["n_routed_experts"]):
        tokens, slots = np.nonzero(chosen == expert)
        if len(tokens):
            y = gated_mlp(weights, f"{prefix}experts.{expert}.", x[tokens])
            out[tokens] += y * share[tokens, slots][:, None]
    if config["n_shared_experts"]:
        out = out + gated_mlp(weights, prefix + "shared_experts.", x)
    return out


def forward(config, weights, ids):
    """Logits [n, vocab] and, of each token, the least distance between the last expert that was
    chosen and the first that was not, over all layers."""
    eps = config["rms_norm_eps"]
    weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    margins = []
    h = weights["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        x = rms_norm(h, weights[prefix + "input_layernorm.weight"], eps)
        h = h + attention(config, weights, prefix + "self_attn.", x, eps)
        x = rms_norm(h, weights[prefix + "post_attention_layernorm.weight"], eps)
        if layer < config["first_k_dense_replace"]:
            h = h + gated_mlp(weights, prefix + "mlp.", x)
        else:
            h = h + mixture(config, weights, prefix + "mlp.", x, margins)
    h = rms_norm(h, weights["model.norm.weight"], eps)
    return h @ weights["lm_head.weight"].T, np.min(margins, axis=0)
