"""Makes the tiny random checkpoints of this folder, with the logits that they must give.

    python tests/golden/make_goldens.py        (numpy, torch, safetensors, transformers 5.17)

Seeded: the same versions give the same files. Each folder of a case holds config.json, tokens and
logits in golden.safetensors, and its own weights unless golden_test.cc names another folder's.
Logits come from transformers in float32 on the dequantised weights, of cases with an epsilon other
than 1e-6 from reference.py; where both apply they are compared. Tokens are drawn so that no router
is near a tie: then a golden tests arithmetic, not on which side of a tie rounding falls.
"""

import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import reference

HERE = pathlib.Path(__file__).parent
N_TOKENS = 80  # past a page of 64
MARGIN = 0.04  # of sigmoid scores; BF16 moves them by about 0.002

YARN = {
    "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
}
BASE = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 96,
    "hidden_size": 128, "intermediate_size": 64, "moe_intermediate_size": 32,
    "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "q_lora_rank": 48, "kv_lora_rank": 64, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16, "v_head_dim": 20, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "hidden_act": "silu", "attention_bias": False, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": YARN,
    "tie_word_embeddings": False, "num_nextn_predict_layers": 0, "bos_token_id": 0,
    "eos_token_id": 1, "dtype": "bfloat16",
}


def random_weights(config, seed):
    """Float32 values that BF16 holds exactly, scaled so that logits spread over a few units, scores
    of attention over about one, and the latents before their norms over about 0.01 (so that their
    epsilon shows)."""
    rng = np.random.default_rng(seed)
    out = {}

    def put(name, shape, std):
        value = torch.from_numpy((rng.standard_normal(shape) * std).astype(np.float32))
        out[name] = value.bfloat16().float()

    def matrix(name, n_out, n_in, gain=1.0):
        put(name + ".weight", (n_out, n_in), gain / n_in**0.5)

    def norm(name, n):
        put(name + ".weight", (n,), 0.2)
        out[name + ".weight"] = (out[name + ".weight"] + 1).bfloat16().float()

    def mlp(prefix, inner):
        matrix(prefix + "gate_proj", inner, hidden)
        matrix(prefix + "up_proj", inner, hidden)
        matrix(prefix + "down_proj", hidden, inner)

    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, v = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    q_lora, kv_lora = config["q_lora_rank"], config["kv_lora_rank"]
    put("model.embed_tokens.weight", (config["vocab_size"], hidden), 1.0)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        norm(prefix + "input_layernorm", hidden)
        norm(prefix + "post_attention_layernorm", hidden)
        attn = prefix + "self_attn."
        if q_lora is None:
            matrix(attn + "q_proj", heads * (nope + rope), hidden, 1.5)
        else:
            matrix(attn + "q_a_proj", q_lora, hidden, 0.01)
            norm(attn + "q_a_layernorm", q_lora)
            matrix(attn + "q_b_proj", heads * (nope + rope), q_lora, 1.5)
        matrix(attn + "kv_a_proj_with_mqa", kv_lora + rope, hidden)
        out[attn + "kv_a_proj_with_mqa.weight"][:kv_lora] *= 2**-7
        norm(attn + "kv_a_layernorm", kv_lora)
        matrix(attn + "kv_b_proj", heads * (nope + v), kv_lora)
        matrix(attn + "o_proj", hidden, heads * v)
        if layer < config["first_k_dense_replace"]:
            mlp(prefix + "mlp.", config["intermediate_size"])
            continue
        matrix(prefix + "mlp.gate", config["n_routed_experts"], hidden, 1.5)
        put(prefix + "mlp.gate.e_score_correction_bias", (config["n_routed_experts"],), 0.1)
        for expert in range(config["n_routed_experts"]):
            mlp(f"{prefix}mlp.experts.{expert}.", config["moe_intermediate_size"])
        mlp(prefix + "mlp.shared_experts.",
            config["moe_intermediate_size"] * config["n_shared_experts"])
    norm("model.norm", hidden)
    matrix("lm_head", config["vocab_size"], hidden, 2.0)
    return out


def stored_bf16(name, weight):
    is_bias = name.endswith("e_score_correction_bias")
    return {name: weight if is_bias else weight.bfloat16()}, weight


def stored_fp8(name, weight):
    """Blocks of 128 x 128, ragged at the edges, for all linear maps but the router and the head."""
    is_linear = name.endswith("_proj.weight") or name.endswith("_mqa.weight")
    if not is_linear:
        return stored_bf16(name, weight)
    rows, columns = weight.shape
    scales = torch.empty((rows + 127) // 128, (columns + 127) // 128)
    values = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    plain = torch.empty(rows, columns)
    for r in range(scales.shape[0]):
        for c in range(scales.shape[1]):
            block = (slice(r * 128, r * 128 + 128), slice(c * 128, c * 128 + 128))
            scales[r, c] = weight[block].abs().max() / 448
            values[block] = (weight[block] / scales[r, c]).to(torch.float8_e4m3fn)
            plain[block] = values[block].float() * scales[r, c]
    return {name: values, name + "_scale_inv": scales}, plain


def stored_int4(group):
    """Routed experts in compressed-tensors pack-quantized; the rest BF16."""

    def store(name, weight):
        if ".experts." not in name:
            return stored_bf16(name, weight)
        rows, columns = weight.shape
        grouped = weight.reshape(rows, columns // group, group)
        scale = (grouped.abs().amax(dim=-1) / 7.5).bfloat16()
        nibble = torch.clamp(torch.round(grouped / scale.float()[..., None]), -8, 7) + 8
        plain = ((nibble - 8) * scale.float()[..., None]).reshape(rows, columns)
        words = nibble.reshape(rows, columns // 8, 8).to(torch.int64)
        packed = (words << (4 * torch.arange(8))).sum(dim=-1)
        packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
        base = name.removesuffix("weight")
        # Published files hold garbage in weight_shape: nothing may depend on it.
        shape = torch.tensor([-1752796263, -1707567530], dtype=torch.int32)
        return {base + "weight_packed": packed, base + "weight_scale": scale,
                base + "weight_shape": shape}, plain

    return store


def draw_tokens(config, weights, seed):
    """Token by token, the first draw that keeps every router of its position clear of a tie."""
    rng = np.random.default_rng(seed)
    numpy_weights = {name: value.numpy() for name, value in weights.items()}
    ids = []
    while len(ids) < N_TOKENS:
        for _ in range(400):
            token = int(rng.integers(2, config["vocab_size"]))
            _, margin = reference.forward(config, numpy_weights, np.array(ids + [token]))
            if margin[-1] > MARGIN:
                ids.append(token)
                break
        else:
            raise SystemExit("no token keeps the routers clear of a tie")
    return ids


def logits_of_transformers(config, weights, ids):
    # transformers knows kimi_k2 only through remote code; it is deepseek_v3 by another name.
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    plain["model_type"] = "deepseek_v3"
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(plain))
        save_file({k: v.contiguous() for k, v in weights.items()},
                  pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager")
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0]


def write_config(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_golden(folder, ids, logits):
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "logits": logits.contiguous().float()},
              folder / "golden.safetensors")


def store_all(weights, store):
    tensors, plain = {}, {}
    for name, weight in weights.items():
        stored, plain[name] = store(name, weight)
        tensors.update(stored)
    return tensors, plain


def write_weights(folder, tensors, prefix="", n_shards=1):
    tensors = {prefix + name: value.contiguous() for name, value in tensors.items()}
    if n_shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    weight_map = {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::n_shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    index = {"metadata": {}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def compare(name, ours, theirs):
    error = float((ours - theirs).abs().max())
    print(f"{name}: logits {float(theirs.std()):.2f} (std), reference within {error:.1e}")
    if error > 2e-4:
        raise SystemExit("reference.py and transformers disagree")


def make_case(name, config, store, seed, **layout):
    """A case with its own weights."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    text_config = config.get("text_config", config)
    write_config(folder, config)
    tensors, plain = store_all(random_weights(text_config, seed), store)
    write_weights(folder, tensors, **layout)
    ids = draw_tokens(text_config, plain, seed)
    logits = logits_of_transformers(text_config, plain, ids)
    ours, _ = reference.forward(text_config, {k: v.numpy() for k, v in plain.items()}, ids)
    compare(name, torch.from_numpy(ours), logits.double())
    write_golden(folder, ids, logits)
    return plain, ids


def quantization(group):
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
               "group_size": group, "actorder": None, "dynamic": False, "observer": "minmax"}
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                      "input_activations": None, "output_activations": None}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                   "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    }


def main():
    torch.manual_seed(0)
    plain, ids = make_case("bf16", BASE, stored_bf16, seed=1)

    # The weights of bf16, without YaRN, in the newer spelling.
    folder = HERE / "rope_default"
    no_yarn = {k: v for k, v in BASE.items() if k not in ("rope_scaling", "rope_theta")}
    no_yarn["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    write_config(folder, no_yarn)
    old_spelling = BASE | {"rope_scaling": None}
    ids = draw_tokens(old_spelling, plain, seed=2)
    logits = logits_of_transformers(no_yarn, plain, ids)
    ours, _ = reference.forward(old_spelling, {k: v.numpy() for k, v in plain.items()}, ids)
    compare("rope_default", torch.from_numpy(ours), logits.double())
    write_golden(folder, ids, logits)

    # The weights of bf16, with an epsilon that transformers does not apply to the latent norms.
    folder = HERE / "eps_1e-5"
    eps = BASE | {"rms_norm_eps": 1e-5}
    write_config(folder, eps)
    ids = draw_tokens(eps, plain, seed=3)
    ours, _ = reference.forward(eps, {k: v.numpy() for k, v in plain.items()}, ids)
    write_golden(folder, ids, torch.from_numpy(ours))

    # As Moonlight: queries in one step, two shared experts.
    moonlight = BASE | {"q_lora_rank": None, "n_shared_experts": 2, "rope_scaling": None,
                        "rope_theta": 50000.0, "num_hidden_layers": 2}
    make_case("q_direct", moonlight, stored_bf16, seed=4)

    # As Kimi K2 Instruct. Rows 80 of kv_a and 192 of the dense layer are ragged blocks.
    fp8 = BASE | {"model_type": "kimi_k2", "intermediate_size": 192, "num_hidden_layers": 2,
                  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                          "activation_scheme": "dynamic",
                                          "weight_block_size": [128, 128]}}
    make_case("fp8_block128", fp8, stored_fp8, seed=5)

    int4 = BASE | {"quantization_config": quantization(32), "num_hidden_layers": 2}
    make_case("int4_group32", int4, stored_int4(32), seed=6)

    # As Kimi K2.6: a text model inside a multimodal one, in two shards.
    text = BASE | {"quantization_config": quantization(128), "moe_intermediate_size": 128,
                   "num_hidden_layers": 2}
    outer = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
             "bos_token_id": 0, "eos_token_id": 1, "text_config": text}
    make_case("int4_group128", outer, stored_int4(128), seed=7, prefix="language_model.",
              n_shards=2)


if __name__ == "__main__":
    main()
