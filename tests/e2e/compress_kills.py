"""compress_kills.py --binary QUIRE --config config.json --work DIR: a checkpoint of published
sizes, cut to one dense layer and one mixture, made up in DIR; compressed once undisturbed, with its
rate and peak memory; then killed again and again at random moments, until it is whole: the bytes
must be those of the first. Needs about 2.2 times the checkpoint's bytes of disk, Linux, and nothing
but the standard library. Exit code 1 when anything differs."""

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time


def cut_config(path, layers, experts):
    config = json.loads(pathlib.Path(path).read_text())
    config.update(num_hidden_layers=layers, first_k_dense_replace=1, num_nextn_predict_layers=0)
    config["n_routed_experts"] = experts
    for key in ("indexer_types", "mlp_layer_types"):
        if key in config:
            config[key] = config[key][:1] + config[key][3 : 2 + layers]
    return config


def make_input(args, folder):
    bare = args.work / "config"
    bare.mkdir(parents=True)
    config = cut_config(args.config, args.layers, args.experts)
    (bare / "config.json").write_text(json.dumps(config))
    command = [args.binary, "shard", "--model-path", str(bare), "--load-format", "dummy"]
    subprocess.run([*command, "--out", str(folder)], check=True, stderr=subprocess.DEVNULL)
    (folder / "shard.json").unlink(missing_ok=True)


def digest(folder):
    """{file: hash}, in pieces: a file may be larger than memory."""
    out = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        of = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 24):
                of.update(piece)
        out[str(path.relative_to(folder))] = of.hexdigest()
    return out


def weight_bytes(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def undisturbed(command, n_in, out):
    """Runs it, prints what it cost, and returns its seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"it ended with {process.returncode}: {' '.join(command)}")
    core_seconds = usage.ru_utime + usage.ru_stime
    print(
        f"undisturbed: {n_in / 1e9:.2f} GB in, {weight_bytes(out) / 1e9:.2f} GB out, "
        f"{seconds:.1f} s ({n_in / seconds / 1e9:.3f} GB/s), {usage.ru_utime:.1f} s in the program "
        f"and {usage.ru_stime:.1f} s in the system ({n_in / core_seconds / 1e9:.3f} GB a second of "
        f"a core), peak memory {usage.ru_maxrss / 1e3:.1f} MB",
        flush=True,
    )
    return seconds


def kill_and_go_on(command, out, args, seconds, expected):
    """Kills until there were enough kills; True when every whole result was the expected one."""
    rng, kills, ends = random.Random(args.seed), 0, 0
    while kills < args.kills or not (out / "config.json").exists():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kills < args.kills:
            # Most runs end in a kill; the whole is done about twice on the way to the last of them.
            time.sleep(rng.uniform(0, 4 * seconds / args.kills))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
        process.wait()
        if not (out / "config.json").exists() or (out / ".compress").exists():
            print(f"kill {kills}: {len(list(out.glob('*.safetensors')))} files whole", flush=True)
            continue
        ends += 1
        same = digest(out) == expected
        found = "the same bytes" if same else "OTHER BYTES"
        print(f"whole after {kills} kills: {found}", flush=True)
        if not same:
            return False
        if kills < args.kills:
            shutil.rmtree(out)
    return ends > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--config", required=True, help="config.json of GLM-5.2-FP8 or the like")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="a folder to make")
    parser.add_argument("--layers", type=int, default=2, help="one dense, the others mixtures")
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--format", default="int4")
    parser.add_argument("--shard-megabytes", type=int, default=300)
    args = parser.parse_args()
    source, out = args.work / "in", args.work / "out"
    if not source.exists():
        make_input(args, source)
    command = [args.binary, "compress", "--input", str(source), "--output", str(out)]
    command += ["--format", args.format, "--max-shard-size", str(args.shard_megabytes)]
    shutil.rmtree(out, ignore_errors=True)
    seconds = undisturbed(command, weight_bytes(source), out)
    expected = digest(out)
    shutil.rmtree(out)
    sys.exit(0 if kill_and_go_on(command, out, args, seconds, expected) else 1)


if __name__ == "__main__":
    main()
