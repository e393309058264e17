"""Writes kimi-nano in another weight format, in the layout of the published checkpoints.

    quantize.py --in models/kimi-nano --out DIR --format fp8|int4-g32|int4-g128|int3-control

fp8: every linear but lm_head and the router: e4m3 with one F32 scale a 128 x 128 block
(`weight_scale_inv`), as Kimi-K2-Instruct. int4-*: routed experts only, compressed-tensors
`pack-quantized`, as Kimi K2.6. int3-control: the same container with values kept in [-4, 3]; it is
there to lose. Needs numpy alone.
"""

import argparse
import json
import os
import shutil
import struct

import numpy as np

E4M3_MAX = 448.0
FORMATS = {
    "fp8": None,
    "int4-g32": (32, -8, 7),
    "int4-g128": (128, -8, 7),
    "int3-control": (32, -4, 3),
}
COPIED = ("generation_config.json", "tiktoken.model", "tokenizer_config.json")


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        out[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return out


def write_safetensors(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        blobs.append(data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def from_bf16(entry):
    _, shape, data = entry
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)


def to_bf16_bits(x):
    """Nearest, ties to even. x: finite float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def e4m3_values():
    """The 127 non-negative finite values of e4m3 in order of their codes."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal).astype(np.float32)


def to_e4m3(x):
    """Codes of the nearest values, ties to the even code, saturated at 448."""
    values = e4m3_values()
    size = np.minimum(np.abs(x), E4M3_MAX)
    high = np.clip(np.searchsorted(values, size), 1, 126)
    low = high - 1
    to_low, to_high = size - values[low], values[high] - size
    pick_low = (to_low < to_high) | ((to_low == to_high) & (low % 2 == 0))
    codes = np.where(pick_low, low, high).astype(np.uint8)
    return codes | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)


def quantise_fp8(weight):
    """(codes, scales): one scale a block of 128 x 128; ragged edges have a whole block's scale."""
    rows, columns = -(-weight.shape[0] // 128), -(-weight.shape[1] // 128)
    scales = np.ones((rows, columns), np.float32)
    codes = np.zeros(weight.shape, np.uint8)
    for r in range(rows):
        for c in range(columns):
            block = np.s_[r * 128 : r * 128 + 128, c * 128 : c * 128 + 128]
            top = np.abs(weight[block]).max()
            scales[r, c] = top / np.float32(E4M3_MAX) if top > 0 else 1.0
            codes[block] = to_e4m3(weight[block] / scales[r, c])
    return codes, scales


def quantise_int(weight, group, low, high):
    """(integers [out, in], BF16 bits of scales [out, in / group]); range from the largest value."""
    grouped = weight.reshape(weight.shape[0], -1, group)
    scale = np.abs(grouped).max(-1, keepdims=True) / np.float32((high - low) / 2)
    bits = to_bf16_bits(np.where(scale > 0, scale, 1.0))
    scale = (bits.astype(np.uint32) << 16).view(np.float32)
    values = np.clip(np.rint(grouped / scale), low, high).astype(np.int32)
    return values.reshape(weight.shape), bits[..., 0]


def pack_int4(values):
    """Eight offset-binary nibbles a word, the first in the lowest bits."""
    nibbles = (values + 8).astype(np.uint32).reshape(values.shape[0], -1, 8)
    shifts = (4 * np.arange(8, dtype=np.uint32))[None, None]
    return np.bitwise_or.reduce(nibbles << shifts, axis=-1).astype("<u4")


def is_linear(name):
    return name.endswith("_proj.weight") or name.endswith("_proj_with_mqa.weight")


def quantised_tensors(tensors, form):
    out = {}
    for name, entry in tensors.items():
        stem = name.removesuffix(".weight")
        if form == "fp8" and is_linear(name):
            codes, scales = quantise_fp8(from_bf16(entry))
            out[name] = ("F8_E4M3", codes.shape, codes.tobytes())
            out[stem + ".weight_scale_inv"] = ("F32", scales.shape, scales.tobytes())
        elif form != "fp8" and ".mlp.experts." in name:
            group, low, high = FORMATS[form]
            values, bits = quantise_int(from_bf16(entry), group, low, high)
            packed = pack_int4(values)
            out[stem + ".weight_packed"] = ("I32", packed.shape, packed.tobytes())
            out[stem + ".weight_scale"] = ("BF16", bits.shape, bits.tobytes())
            shape = np.array(values.shape, "<i8")
            out[stem + ".weight_shape"] = ("I64", shape.shape, shape.tobytes())
        else:
            out[name] = entry
    return out


def dequantised(name, weight, form):
    """What a reader gets back for a BF16 weight under a format, as float32. For simulations."""
    if form == "fp8" and is_linear(name):
        codes, scales = quantise_fp8(weight)
        values = e4m3_values()[codes & 0x7F] * np.where(codes & 0x80, -1, 1)
        wide = np.repeat(np.repeat(scales, 128, 0), 128, 1)[: codes.shape[0], : codes.shape[1]]
        return (values * wide).astype(np.float32)
    if form not in ("fp8", "bf16") and ".mlp.experts." in name:
        group, low, high = FORMATS[form]
        values, bits = quantise_int(weight, group, low, high)
        scale = (bits.astype(np.uint32) << 16).view(np.float32)
        return (values * np.repeat(scale, group, 1)).astype(np.float32)
    return weight


def quantization_config(form):
    if form == "fp8":
        return {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
        }
    weights = {
        "actorder": None,
        "block_structure": None,
        "dynamic": False,
        "group_size": FORMATS[form][0],
        "num_bits": 4,
        "observer": "minmax",
        "observer_kwargs": {},
        "strategy": "group",
        "symmetric": True,
        "type": "int",
    }
    group = {
        "input_activations": None,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": weights,
    }
    return {
        "config_groups": {"group_0": group},
        "format": "pack-quantized",
        "ignore": [
            "lm_head",
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
        ],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in", dest="source", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--format", choices=list(FORMATS), required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    tensors = read_safetensors(f"{args.source}/model.safetensors")
    quantised = quantised_tensors(tensors, args.format)
    write_safetensors(f"{args.out}/model.safetensors", quantised)
    with open(f"{args.source}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = quantization_config(args.format)
    with open(f"{args.out}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    for name in COPIED:
        if os.path.exists(f"{args.source}/{name}"):
            shutil.copy(f"{args.source}/{name}", f"{args.out}/{name}")


if __name__ == "__main__":
    main()
