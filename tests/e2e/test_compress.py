"""quire compress: the bytes it writes, what it survives, and what it refuses."""

import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import time

import compress_reference as reference
import numpy as np
import pytest

EXPERT = ".mlp.experts."


def compress(binary, source, out, *flags, **popen):
    return subprocess.run(
        [binary, "compress", "--input", str(source), "--output", str(out), *flags],
        capture_output=True,
        text=True,
        timeout=120,
        **popen,
    )


def succeed(*args, **popen):
    done = compress(*args, **popen)
    assert done.returncode == 0, done.stderr
    return done


def digest(folder):
    """{file: hash} of all files of a folder and those below it."""
    root = pathlib.Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(f.relative_to(root)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def expert_maps(tensors):
    names = [name for name in tensors if EXPERT in name and name.endswith(".weight")]
    return sorted(name.removesuffix(".weight") for name in names)


@pytest.fixture(scope="module")
def fp8(binary, model_path, tmp_path_factory):
    out = tmp_path_factory.mktemp("compressed") / "fp8"
    succeed(binary, model_path, out, "--format", "fp8")
    return out


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("from_fp8", [False, True])
def test_int4_is_what_the_reference_writes(binary, model_path, fp8, tmp_path, group, from_fp8):
    source = fp8 if from_fp8 else model_path
    succeed(binary, source, tmp_path / "out", "--format", "int4", "--group-size", str(group))
    before, after = reference.read_folder(source), reference.read_folder(tmp_path / "out")
    maps = expert_maps(before)
    assert len(maps) == 144
    for name in maps:
        weight = reference.decode(before, name)
        words, scales = reference.quantise_int4(weight, group)
        assert after[name + ".weight_packed"] == ("I32", list(words.shape), words.tobytes()), name
        assert after[name + ".weight_scale"] == ("BF16", list(scales.shape), scales.tobytes()), name
        shape = np.array(weight.shape, "<i8")
        assert after[name + ".weight_shape"] == ("I64", [2], shape.tobytes())
        assert name + ".weight" not in after
    # The rest as it was; what was FP8 is BF16, rounded once.
    for name, entry in before.items():
        if EXPERT in name or name.endswith("_scale_inv"):
            continue
        if entry[0] == "F8_E4M3":
            bits = reference.to_bf16(reference.decode(before, name.removesuffix(".weight")))
            entry = ("BF16", entry[1], bits.tobytes())
        assert after[name] == entry, name


def test_fp8_is_what_the_reference_writes(model_path, fp8):
    before, after = reference.read_folder(model_path), reference.read_folder(fp8)
    n_converted = 0
    for name, entry in before.items():
        stem = name.removesuffix(".weight")
        if not stem.endswith(("_proj", "_proj_with_mqa")):
            assert after[name] == entry, name
            continue
        codes, scales = reference.quantise_fp8(reference.decode(before, stem))
        assert after[name] == ("F8_E4M3", list(codes.shape), codes.tobytes()), name
        assert after[stem + ".weight_scale_inv"] == ("F32", list(scales.shape), scales.tobytes())
        n_converted += 1
    assert n_converted > 144


def test_nvfp4_is_what_the_reference_writes(binary, model_path, tmp_path):
    succeed(binary, model_path, tmp_path / "out", "--format", "nvfp4")
    before, after = reference.read_folder(model_path), reference.read_folder(tmp_path / "out")
    for name in expert_maps(before):
        packed, scales, tensor_scale = reference.quantise_nvfp4(reference.decode(before, name))
        assert after[name + ".weight"] == ("U8", list(packed.shape), packed.tobytes()), name
        assert after[name + ".weight_scale"] == ("F8_E4M3", list(scales.shape), scales.tobytes())
        one = np.float32(tensor_scale).tobytes()
        assert after[name + ".weight_scale_2"] == ("F32", [], one), name
        assert after[name + ".input_scale"] == ("F32", [], np.float32(1).tobytes())


def test_the_report_says_what_was_lost(binary, model_path, tmp_path):
    succeed(binary, model_path, tmp_path / "out", "--format", "int4")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    before, after = reference.read_folder(model_path), reference.read_folder(tmp_path / "out")
    assert report["bytes_before"] == sum(len(data) for _, _, data in before.values())
    assert report["bytes_after"] == sum(len(data) for _, _, data in after.values())
    assert len(report["tensors"]) == 144
    for tensor in report["tensors"][::7]:
        name = tensor["name"].removesuffix(".weight")
        weight = reference.decode(before, name).astype(np.float64)
        words = np.frombuffer(after[name + ".weight_packed"][2], "<u4")
        nibbles = (words[:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        scales = reference.from_bf16(np.frombuffer(after[name + ".weight_scale"][2], "<u2"))
        value = (nibbles.reshape(-1, 32).astype(np.float64) - 8) * scales[:, None]
        off = value.reshape(weight.shape) - weight
        relative = np.sqrt((off**2).sum() / (weight**2).sum())
        assert tensor["relative_error"] == pytest.approx(relative, rel=1e-4)
        cosine = (weight * (weight + off)).sum()
        cosine /= np.sqrt((weight**2).sum() * ((weight + off) ** 2).sum())
        assert tensor["cosine"] == pytest.approx(cosine, abs=1e-6)
        worst = tensor["worst_group"]
        group = np.s_[worst["row"], worst["group"] * 32 : worst["group"] * 32 + 32]
        of_group = np.sqrt((off[group] ** 2).sum() / (weight[group] ** 2).sum())
        assert worst["relative_error"] == pytest.approx(of_group, rel=1e-4)
        assert worst["relative_error"] >= tensor["relative_error"]


def test_patterns_choose(binary, model_path, tmp_path):
    flags = ["--format", "int4", "--include", r"re:.*shared_experts.*", "--include", "lm_head"]
    flags += ["--exclude", r"re:model\.layers\.2\.mlp\.experts\..*"]
    succeed(binary, model_path, tmp_path / "out", *flags)
    after = reference.read_folder(tmp_path / "out")
    packed = {name for name in after if name.endswith(".weight_packed")}
    assert "lm_head.weight_packed" in packed
    assert not any(name.startswith("model.layers.2.mlp.experts.") for name in packed)
    assert sum(".mlp.shared_experts." in name for name in packed) == 9
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    ignore = config["quantization_config"]["ignore"]
    assert "lm_head" not in ignore and "re:.*shared_experts.*" not in ignore
    assert "model.layers.2.mlp.experts.0.gate_proj" in ignore
    inspected = subprocess.run(
        [binary, "inspect", "--model-path", str(tmp_path / "out"), "--json"], capture_output=True
    )
    assert inspected.returncode == 0 and json.loads(inspected.stdout)["runs"]
    done = compress(binary, model_path, tmp_path / "no", "--format", "int4", "--exclude", "lm_haed")
    assert done.returncode == 1 and "--exclude lm_haed matches no" in done.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("flags", [["int4"], ["int4", "--group-size", "128"], ["fp8"], ["nvfp4"]])
def test_the_engine_runs_it(binary, model_path, tmp_path, flags):
    """And answers as the weights did before: 100 items of two tasks, at most two answers less."""
    succeed(binary, model_path, tmp_path / "out", "--format", *flags)
    right = []
    for path in (model_path, tmp_path / "out"):
        data = str(pathlib.Path(model_path) / "eval")
        command = [binary, "eval", "--model-path", str(path), "--data", data, "--json"]
        command += ["--task", "count,sort", "--limit", "50"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        right.append({t["task"]: t["accuracy"] for t in json.loads(done.stdout)["tasks"]})
    assert right[0].keys() == {"count", "sort"}
    assert sum(right[1].values()) >= sum(right[0].values()) - 2 / 50


def test_nvfp4_is_run_as_the_bf16_that_it_means(binary, model_path, tmp_path):
    """The same logits, digit for digit, as of a BF16 checkpoint that the reference decoded."""
    succeed(binary, model_path, tmp_path / "nvfp4", "--format", "nvfp4")
    tensors = reference.read_folder(tmp_path / "nvfp4")
    plain = {}
    for name, entry in tensors.items():
        stem = name.removesuffix(".weight")
        if entry[0] == "U8":
            bits = reference.to_bf16(reference.decode_nvfp4(tensors, stem))
            plain[name] = ("BF16", list(bits.shape), bits.tobytes())
        elif not name.endswith((".weight_scale", ".weight_scale_2", ".input_scale")):
            plain[name] = entry
    (tmp_path / "bf16").mkdir()
    reference.write_file(tmp_path / "bf16" / "model.safetensors", plain)
    for file in ("config.json", "tiktoken.model", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(model_path) / file, tmp_path / "bf16" / file)
    prompts = ([4096, 312, 77, 910], [5, 1201, 44])
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    logits = []
    for folder in ("nvfp4", "bf16"):
        command = [binary, "logits", "--model-path", str(tmp_path / folder)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        logits.append(done.stdout)
    assert logits[0].count("\n") == 2
    assert logits[0] == logits[1]


def test_killed_twenty_times_it_goes_on_with_the_same_bytes(binary, model_path, tmp_path):
    flags = ["--format", "int4", "--max-shard-size", "1", "--threads", "2"]
    begin = time.monotonic()
    succeed(binary, model_path, tmp_path / "whole", *flags)
    seconds = time.monotonic() - begin
    command = [binary, "compress", "--input", model_path, "--output", str(tmp_path / "cut"), *flags]
    rng, kills, ends = random.Random(6), 0, 0
    while kills < 20:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, seconds * 0.4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if not (tmp_path / "cut" / "config.json").exists():
            continue
        # It was quicker, and is whole, killed or not: from the start again, the kills so far count.
        if (tmp_path / "cut" / ".compress").exists():  # all but its own record's removal
            succeed(binary, model_path, tmp_path / "cut", *flags)
        files = digest(tmp_path / "cut")
        whole = {name: of for name, of in files.items() if not name.startswith(".compress")}
        assert whole == digest(tmp_path / "whole")
        shutil.rmtree(tmp_path / "cut")
        ends += 1
        assert ends < 60
    succeed(binary, model_path, tmp_path / "cut", *flags)
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def test_threads_do_not_change_the_bytes(binary, model_path, tmp_path):
    for threads in ("1", "5"):
        flags = ["--format", "nvfp4", "--max-shard-size", "2", "--threads", threads]
        succeed(binary, model_path, tmp_path / threads, *flags)
    assert digest(tmp_path / "1") == digest(tmp_path / "5")


def test_nothing_is_overwritten(binary, model_path, tmp_path):
    out = tmp_path / "out"
    succeed(binary, model_path, out, "--format", "int4")
    before = digest(out)
    done = compress(binary, model_path, out, "--format", "int4", "--group-size", "128")
    assert done.returncode == 1 and "nothing is overwritten" in done.stderr
    assert digest(out) == before
    for inside in (pathlib.Path(model_path), pathlib.Path(model_path) / "below"):
        done = compress(binary, model_path, inside, "--format", "int4")
        assert done.returncode == 1 and "is the input or inside it" in done.stderr
        assert not inside.joinpath(".compress").exists()
    # What another call began is not gone on with under other options.
    shutil.rmtree(out)
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    flags = ["--format", "int4", "--max-shard-size", "2"]
    assert compress(binary, model_path, out, *flags, preexec_fn=limited).returncode == 1
    done = compress(binary, model_path, out, "--format", "fp8")
    assert done.returncode == 1 and "begun with other options" in done.stderr


def test_a_full_disk_is_an_error_that_is_gone_when_there_is_room(binary, model_path, tmp_path):
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    flags = ["--format", "int4", "--max-shard-size", "2"]
    done = compress(binary, model_path, tmp_path / "out", *flags, preexec_fn=limited)
    assert done.returncode == 1
    assert "model-00001-of-" in done.stderr and "File too large" in done.stderr
    left = [name for name in digest(tmp_path / "out") if not name.startswith(".compress")]
    assert left == []
    succeed(binary, model_path, tmp_path / "out", *flags)
    succeed(binary, model_path, tmp_path / "whole", *flags)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def remount(folder, options):
    command = ["mount", "-o", "remount," + options, str(folder)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 5 MB: less than what is written."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=5m", "quire", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def test_a_disk_without_room_keeps_what_is_whole(binary, model_path, small_disk, tmp_path):
    out, flags = small_disk / "out", ["--format", "int4", "--max-shard-size", "2"]
    done = compress(binary, model_path, out, *flags)
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert str(out / "model-0000") in done.stderr and 'tensor "model.' in done.stderr
    kept = {name: of for name, of in digest(out).items() if not name.startswith(".compress")}
    succeed(binary, model_path, tmp_path / "whole", *flags)
    whole = digest(tmp_path / "whole")
    assert kept and kept.keys() < whole.keys() and "config.json" not in kept
    assert all(of == whole[name] for name, of in kept.items())
    assert compress(binary, model_path, out, *flags).returncode == 1  # still
    assert all(digest(out)[name] == of for name, of in kept.items())
    remount(small_disk, "size=40m")
    succeed(binary, model_path, out, *flags)
    assert digest(out) == whole


def test_a_read_only_target_is_an_error(binary, model_path, small_disk):
    out, flags = small_disk / "out", ["--format", "int4", "--max-shard-size", "2"]
    assert compress(binary, model_path, out, *flags).returncode == 1
    before = digest(small_disk)
    remount(small_disk, "ro")
    for target in (out, small_disk / "new"):
        done = compress(binary, model_path, target, *flags)
        assert done.returncode == 1 and "Read-only file system" in done.stderr, done.stderr
        assert str(target) in done.stderr
    assert digest(small_disk) == before


def test_a_target_that_cannot_be_made_is_an_error(binary, model_path):
    done = compress(binary, model_path, "/proc/quire", "--format", "int4")
    assert done.returncode == 1 and "/proc/quire" in done.stderr
