"""quire compress on damaged inputs: each is an error that names file and tensor, before anything is
written over."""

import json
import os
import random
import shutil
import struct

import compress_reference as reference
import numpy as np
import pytest
from test_compress import compress, digest, succeed

MAP = "model.layers.1.mlp.experts.3.up_proj"


def truncate(folder):
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 4096)
    return "model.safetensors"


def misshape(folder):
    tensors = reference.read_folder(folder)
    dtype, shape, data = tensors[MAP + ".weight"]
    tensors[MAP + ".weight"] = (dtype, shape[::-1], data)
    reference.write_file(folder / "model.safetensors", tensors)
    return MAP + ".weight"


def drop(folder, name=MAP + ".weight"):
    tensors = reference.read_folder(folder)
    del tensors[name]
    reference.write_file(folder / "model.safetensors", tensors)
    return MAP + ".weight"


def add_unknown(folder):
    tensors = reference.read_folder(folder)
    tensors["model.layers.1.mlp.experts.3.up_proj.bias"] = ("BF16", [128], bytes(256))
    reference.write_file(folder / "model.safetensors", tensors)
    return "up_proj.bias"


def drop_from_index(folder):
    tensors = reference.read_folder(folder)
    files = {name: "model.safetensors" for name in tensors if name != MAP + ".weight"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    return MAP + ".weight"


def lose_shard(folder):
    files = {name: "model-9.safetensors" for name in reference.read_folder(folder)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return "model-9.safetensors"


def put(folder, name, at, value):
    tensors = reference.read_folder(folder)
    dtype, shape, data = tensors[name]
    data = data[:at] + value + data[at + len(value) :]
    tensors[name] = (dtype, shape, data)
    reference.write_file(folder / "model.safetensors", tensors)
    return name


def nan_weight(folder):
    return put(folder, MAP + ".weight", 2 * (5 * 256 + 7), b"\xc0\x7f")


def nan_scale(folder):
    return put(folder, MAP + ".weight_scale_inv", 4, np.float32(np.nan).tobytes())


def nan_code(folder):
    return put(folder, MAP + ".weight", 700, b"\x7f")


def drop_scale(folder):
    return drop(folder, MAP + ".weight_scale_inv")


def misshape_scale(folder):
    tensors = reference.read_folder(folder)
    dtype, shape, data = tensors[MAP + ".weight_scale_inv"]
    tensors[MAP + ".weight_scale_inv"] = (dtype, [shape[0], shape[1] + 1], data + bytes(4))
    reference.write_file(folder / "model.safetensors", tensors)
    return MAP + ".weight_scale_inv"


def infinite_weight(folder):
    return put(folder, MAP + ".weight", 2 * 99, b"\x80\xff")


def change_dtype(folder):
    tensors = reference.read_folder(folder)
    dtype, shape, data = tensors[MAP + ".weight"]
    tensors[MAP + ".weight"] = ("F16", shape, data)
    reference.write_file(folder / "model.safetensors", tensors)
    return MAP + ".weight"


def change_header(folder, change):
    """Passes the header's JSON through `change`, text to text."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    text = change(data[8 : 8 + size].decode()).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def with_entry(change):
    def of_text(text):
        header = json.loads(text)
        change(header[MAP + ".weight"])
        return json.dumps(header)

    return of_text


def overlap(folder):
    def back(entry):
        entry["data_offsets"] = [at - 512 for at in entry["data_offsets"]]

    change_header(folder, with_entry(back))
    return "model.safetensors"


def invert(folder):
    change_header(folder, with_entry(lambda entry: entry["data_offsets"].reverse()))
    return MAP + ".weight"


def unknown_dtype(folder):
    change_header(folder, with_entry(lambda entry: entry.update(dtype="F4_E9")))
    return MAP + ".weight"


def huge_shape(folder):
    change_header(folder, with_entry(lambda entry: entry.update(shape=[1 << 40, 1 << 40])))
    return MAP + ".weight"


def negative_shape(folder):
    change_header(folder, with_entry(lambda entry: entry.update(shape=[-128, -256])))
    return MAP + ".weight"


def name_twice(folder):
    def again(text):
        entry = json.dumps(json.loads(text)[MAP + ".weight"])
        return text.rstrip()[:-1] + f', "{MAP}.weight": {entry}}}'

    change_header(folder, again)
    return MAP + ".weight"


def in_two_shards(folder):
    tensors = reference.read_folder(folder)
    names = ("model-1.safetensors", "model-2.safetensors")
    (folder / "model.safetensors").unlink()
    reference.write_file(folder / names[0], tensors)
    reference.write_file(folder / names[1], {MAP + ".weight": tensors[MAP + ".weight"]})
    files = {name: names[name == MAP + ".weight"] for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return MAP + ".weight"


def shard_elsewhere(folder):
    files = {name: "../model.safetensors" for name in reference.read_folder(folder)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return "../model.safetensors"


def index_of_nothing(folder):
    files = dict.fromkeys(reference.read_folder(folder), "model.safetensors")
    files["model.layers.9.mlp.gate.weight"] = "model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return "model.layers.9.mlp.gate.weight"


def no_header(folder):
    (folder / "model.safetensors").write_bytes(b"")
    return "model.safetensors"


def endless_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 62) + path.read_bytes()[8:])
    return "model.safetensors"


def append(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(bytes(64))
    return "model.safetensors"


DAMAGES = [truncate, misshape, drop, add_unknown, drop_from_index, lose_shard, nan_weight]
DAMAGES += [infinite_weight, change_dtype, overlap, invert, unknown_dtype, huge_shape]
DAMAGES += [negative_shape, name_twice, in_two_shards, shard_elsewhere, index_of_nothing]
DAMAGES += [no_header, endless_header, append]
FP8_DAMAGES = [nan_scale, nan_code, drop_scale, misshape_scale]


@pytest.fixture(scope="module")
def fp8(binary, model_path, tmp_path_factory):
    out = tmp_path_factory.mktemp("compressed") / "fp8"
    succeed(binary, model_path, out, "--format", "fp8")
    return out


@pytest.mark.parametrize("damage", DAMAGES + FP8_DAMAGES)
def test_a_damaged_input_is_an_error_with_its_name(binary, model_path, fp8, tmp_path, damage):
    source = tmp_path / "in"
    shutil.copytree(fp8 if damage in FP8_DAMAGES else model_path, source)
    if damage in FP8_DAMAGES:  # one file, as the others
        tensors = reference.read_folder(source)
        for file in source.glob("model*"):
            file.unlink()
        reference.write_file(source / "model.safetensors", tensors)
    named = damage(source)
    done = compress(binary, source, tmp_path / "out", "--format", "int4")
    assert done.returncode == 1, done.stdout
    assert named in done.stderr, done.stderr
    assert str(source) in done.stderr, done.stderr
    assert not list((tmp_path / "out").glob("[!.]*"))


def spoil(data, header_bytes, rng):
    """One to three strokes: bytes changed, mostly of the header; a stretch cut out; an end lost."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(min(header_bytes, len(data)) if rng.random() < 0.8 else len(data))
        kind = rng.random()
        if kind < 0.7:
            data[at] = rng.choice((rng.randrange(256), ord("0"), ord("9"), ord('"'), ord("}")))
        elif kind < 0.85:
            del data[at : at + rng.choice((1, 2, 8, 4096))]
        else:
            del data[at + header_bytes // 2 :]
    return bytes(data)


def test_random_damage_is_an_error_or_harmless(binary, model_path, tmp_path):
    """Never a crash, never a half checkpoint that looks whole, and the file is named."""
    source, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(model_path, source, ignore=shutil.ignore_patterns("eval", "recipe"))
    file = source / "model.safetensors"
    whole = file.read_bytes()
    header_bytes = 8 + struct.unpack("<Q", whole[:8])[0]
    refused = 0
    for seed in range(60):
        file.write_bytes(spoil(whole, header_bytes, random.Random(seed)))
        done = compress(binary, source, out, "--format", "int4")
        assert done.returncode in (0, 1), (seed, done.returncode, done.stderr)
        if done.returncode == 1:
            assert str(source) in done.stderr, (seed, done.stderr)
            assert not list(out.glob("[!.]*")), seed
            refused += 1
        else:
            assert (out / "config.json").exists(), seed
        shutil.rmtree(out, ignore_errors=True)
    assert refused > 30


def test_the_input_is_as_it_was(binary, fp8, tmp_path):
    before = digest(fp8)
    succeed(binary, fp8, tmp_path / "out", "--format", "int4")
    assert digest(fp8) == before
