"""What `quire compress` must write, computed another way: in numpy, from docs/compress.md."""

import json
import pathlib
import struct

import numpy as np

INT4_DIVISORS = (7, 7.5, 8, 8.5, 9, 9.5, 10, 10.5)
SMALLEST_SCALE = np.float32(2.0**-126)


def read_folder(path):
    """{name: (dtype, shape, bytes)} of all safetensors of a folder."""
    out = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        tensors = read_file(file)
        assert not out.keys() & tensors.keys()
        out |= tensors
    return out


def read_file(path):
    """{name: (dtype, shape, bytes)} of one safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        out[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return out


def write_file(path, tensors):
    """{name: (dtype, shape, bytes)} as one safetensors file."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    blobs = b"".join(data for _, _, data in tensors.values())
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + blobs)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def e4m3_values():
    """The values of codes 0 to 126."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, normal).astype(np.float32)


def from_e4m3(codes):
    values = np.append(e4m3_values(), np.float32(np.nan))
    return values[codes & 0x7F] * np.where(codes & 0x80, np.float32(-1), np.float32(1))


def to_e4m3(x):
    """Codes of the nearest values, ties to the even code, at most 448."""
    values = e4m3_values()
    size = np.minimum(np.abs(x), np.float32(448))
    high = np.clip(np.searchsorted(values, size), 1, 126)
    low = high - 1
    to_low, to_high = size - values[low], values[high] - size
    pick_low = (to_low < to_high) | ((to_low == to_high) & (low % 2 == 0))
    codes = np.where(pick_low, low, high).astype(np.uint8)
    return codes | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)


def decode(tensors, name):
    """A linear map's weights as float32, from BF16 or FP8 blocks."""
    dtype, shape, data = tensors[name + ".weight"]
    if dtype == "BF16":
        return from_bf16(np.frombuffer(data, "<u2")).reshape(shape)
    assert dtype == "F8_E4M3"
    _, scale_shape, scale_data = tensors[name + ".weight_scale_inv"]
    scale = np.frombuffer(scale_data, "<f4").reshape(scale_shape)
    wide = np.repeat(np.repeat(scale, 128, 0), 128, 1)[: shape[0], : shape[1]]
    return from_e4m3(np.frombuffer(data, np.uint8)).reshape(shape) * wide


def decode_nvfp4(tensors, name):
    """Before it is rounded to BF16."""
    _, (rows, half), data = tensors[name + ".weight"]
    packed = np.frombuffer(data, np.uint8).reshape(rows, half)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows, 2 * half)
    sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)[codes & 7]
    scale = from_e4m3(np.frombuffer(tensors[name + ".weight_scale"][2], np.uint8))
    scale = scale * np.frombuffer(tensors[name + ".weight_scale_2"][2], "<f4")
    values = sizes * np.repeat(scale.reshape(rows, -1), 16, 1)
    return np.where(codes & 8, -values, values)


def usable(scale):
    return np.where(scale >= SMALLEST_SCALE, scale, np.float32(1))


def error_of(groups, scale, nearest):
    """Squares summed in order of the inputs, in float32."""
    inverse = np.float32(1) / scale
    error = np.zeros_like(scale)
    for i in range(groups.shape[-1]):
        off = groups[..., i] - nearest(groups[..., i] * inverse) * scale
        error = error + off * off
    return error


def nearest_int4(x):
    return np.clip(np.rint(x), np.float32(-8), np.float32(7))


def nearest_e2m1(x):
    size = np.minimum(np.abs(x), np.float32(6))
    fine, coarse = np.rint(size * 2) / 2, np.rint(size / 2) * 2
    out = np.where(size < 2, fine, np.where(size < 4, np.rint(size), coarse))
    return np.copysign(out, x).astype(np.float32)


class Best:
    """The scale of the least error so far; the first of equals."""

    def __init__(self, groups, scale, nearest):
        self.groups, self.scale, self.nearest = groups, scale, nearest
        self.error = np.full_like(scale, np.inf)

    def consider(self, scale):
        error = error_of(self.groups, scale, self.nearest)
        better = error < self.error
        self.scale = np.where(better, scale, self.scale)
        self.error = np.where(better, error, self.error)
        return better


def round_scale(x):
    return usable(from_bf16(to_bf16(x)))


def int4_scales(groups):
    """The scale of each group, groups [..., group]."""
    largest = np.abs(groups).max(-1)
    first = round_scale(largest * (np.float32(1) / np.float32(INT4_DIVISORS[0])))
    best = Best(groups, first, nearest_int4)
    for divisor in INT4_DIVISORS:
        best.consider(round_scale(largest * (np.float32(1) / np.float32(divisor))))
    for _ in range(2):
        inverse = np.float32(1) / best.scale
        product, square = np.zeros_like(inverse), np.zeros_like(inverse)
        for i in range(groups.shape[-1]):
            q = nearest_int4(groups[..., i] * inverse)
            product, square = product + groups[..., i] * q, square + q * q
        best.consider(round_scale(product / np.maximum(square, np.float32(1))))
    return best.scale


def pack_int4(values):
    """Words of values from -8 to 7, [out, in]."""
    nibbles = (values.astype(np.int32) + 8).astype(np.uint32).reshape(values.shape[0], -1, 8)
    words = np.bitwise_or.reduce(nibbles << (4 * np.arange(8, dtype=np.uint32)), axis=-1)
    return words.astype("<u4")


def quantise_int4(weight, group):
    """(words [out, in / 8], BF16 bits of scales [out, in / group])."""
    groups = weight.reshape(weight.shape[0], -1, group)
    scales = int4_scales(groups)
    values = nearest_int4(groups * (np.float32(1) / scales)[..., None])
    return pack_int4(values.reshape(weight.shape)), to_bf16(scales)


def decode_int4(words, scales, group):
    nibbles = (words[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    values = nibbles.reshape(len(words), -1).astype(np.float32) - 8
    return values * np.repeat(from_bf16(scales), group, -1)


def moments(inputs):
    """inputs^T inputs, token after token in float32."""
    h = np.zeros((inputs.shape[1],) * 2, np.float32)
    for token in inputs:
        h += np.outer(token, token)
    return h


def factor(h, damping):
    """L of L L^T = h + lambda I, term after term in float32."""
    n = len(h)
    h = h + np.float32(damping * sum(h.diagonal().tolist()) / n) * np.eye(n, dtype=np.float32)
    for k in range(n):
        h[k, k:] /= np.sqrt(h[k, k])
        h[k + 1 :, k + 1 :] -= np.outer(h[k, k + 1 :], h[k, k + 1 :])
    return np.triu(h).T


def gated(tokens, gate, up):
    """bf16(silu(gate x) * (up x)), what a down projection is given."""
    sums = [np.zeros((len(tokens), len(gate)), np.float32) for _ in range(2)]
    for i in range(tokens.shape[1]):
        for total, weight in zip(sums, (gate, up), strict=True):
            total += np.outer(tokens[:, i], weight[:, i])
    x = sums[0].astype(np.float64)
    silu = (x / (1 + np.exp(-x))).astype(np.float32)
    return from_bf16(to_bf16(silu * sums[1]))


def round_int4_for(weight, group, lower):
    """(values from -8 to 7, scales) by GPTQ: inputs from the last to the first."""
    n_out, n_in = weight.shape
    carried = np.zeros((n_in, n_out), np.float32)
    values, scales = np.zeros_like(weight), np.zeros((n_out, n_in // group), np.float32)
    for first in range(n_in - group, -1, -group):
        at = np.arange(first, first + group)
        scale = int4_scales(weight[:, at] + carried[at].T / lower[at, at])
        scales[:, first // group] = scale
        for i in at[::-1]:
            wanted = weight[:, i] + carried[i] / lower[i, i]
            values[:, i] = nearest_int4(wanted * (np.float32(1) / scale))
            carried[:i] += lower[i, :i, None] * (weight[:, i] - values[:, i] * scale)
    return values, scales


def quantise_int4_for(weight, group, inputs, held_out):
    """(words, BF16 bits of scales, damping): GPTQ at the damping whose outputs for the inputs that
    are held out, [tokens, in], are nearest; rounding, and 0, when none are nearer than its."""

    def off(words, scales):
        error = weight.astype(np.float64) - decode_int4(words, scales, group)
        return np.square(held_out.astype(np.float64) @ error.T).sum()

    best = (*quantise_int4(weight, group), 0)
    least = off(*best[:2])
    h = moments(inputs)
    for damping in (0.01, 0.1, 1):
        values, scales = round_int4_for(weight, group, factor(h, damping))
        found = pack_int4(values), to_bf16(scales)
        if off(*found) < least:
            best, least = (*found, damping), off(*found)
    return best


def quantise_fp8(weight):
    """(codes, scales [ceil(out / 128), ceil(in / 128)])."""
    rows, columns = -(-weight.shape[0] // 128), -(-weight.shape[1] // 128)
    scales = np.ones((rows, columns), "<f4")
    codes = np.zeros(weight.shape, np.uint8)
    for r in range(rows):
        for c in range(columns):
            block = np.s_[r * 128 : r * 128 + 128, c * 128 : c * 128 + 128]
            scale = np.abs(weight[block]).max() / np.float32(448)
            scales[r, c] = scale if scale >= SMALLEST_SCALE else 1
            codes[block] = to_e4m3(weight[block] / scales[r, c])
    return codes, scales


def quantise_nvfp4(weight):
    """(bytes [out, in / 2], e4m3 bits of scales [out, in / 16], scale of the tensor)."""
    tensor_scale = np.abs(weight).max() / np.float32(6 * 448)
    tensor_scale = tensor_scale if tensor_scale >= SMALLEST_SCALE else np.float32(1)
    groups = weight.reshape(weight.shape[0], -1, 16)
    first = to_e4m3(np.abs(groups).max(-1) / np.float32(6) / tensor_scale).astype(np.int32)
    best = Best(groups, np.ones(first.shape, np.float32), nearest_e2m1)
    codes = np.ones_like(first)
    for step in range(-1, 6):
        code = np.clip(first + step, 1, 126)
        better = best.consider(usable(e4m3_values()[code] * tensor_scale))
        codes = np.where(better, code, codes)
    values = nearest_e2m1(groups * (np.float32(1) / best.scale)[..., None])
    size = np.abs(values)
    index = np.minimum(np.where(size < 2, size * 2, size + 2), 7).astype(np.uint8)
    bits = (index | np.where(np.signbit(values), 8, 0).astype(np.uint8)).reshape(weight.shape)
    return bits[:, 0::2] | bits[:, 1::2] << 4, codes.astype(np.uint8), tensor_scale
