"""Plants each mutant in a copy of the tree and says which tier of tests notices.

    python3 tests/mutants/run.py [--only NAME,...] [--tiers unit,sim,contamination] [--json]
    python3 tests/mutants/run.py --check

The tiers are run in order, and the first that fails has killed the mutant: `unit` is the tests
beside the code, `sim` the simulation with and without planted faults, `contamination` requests over
HTTP. What no tier notices has survived, and the run ends with 1. `--check` only looks that each
mutant's text is there, once; CI does that.

The copy is in build/mutants, and is built once. Then a mutant costs what it touches: its source is
compiled without optimisation and linked before the libraries that have the right one.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time

from mutants import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "mutants"
BUILD = TREE / "build" / "cpu"
TIERS = ("unit", "sim", "contamination")
TEST_SECONDS_MAX = 600
# Of the processor's: one that turns for ever is known by it on a busy machine too.
TEST_CPU_SECONDS_MAX = 120
# A mutant may leave a name unused.
UNWANTED = ("-g", "-O2", "-Werror")
NO_BUILD = "does not compile"

# Which programs have the unit tests of a folder of src, and of those that stand on it.
UNIT = {
    "format": ("format_test", "engine_test"),
    "kv": ("kv_test", "engine_test"),
    "engine": ("engine_test",),
    "server": ("server_test",),
}
INLINE_IN = {
    "src/kv/page_pool.h": ("src/kv/page_pool.cc",),
    "src/kv/lease.h": ("src/kv/page_pool.cc", "src/kv/prefix_index.cc", "src/kv/audit.cc"),
}
# A test that fails is often followed by one that does not end.
FIRST_FAILURE = ("--gtest_brief=1", "--gtest_fail_fast")
# Threads, and sizes that take a while: nothing of the classes depends on them.
UNIT_FILTER = "--gtest_filter=-FullPool*:HttpServer*:HttpRequestReader*"


def unit_programs(mutant):
    return UNIT[mutant.file.split("/")[1]]


def sources_of(mutant):
    """What is compiled with the wrong text: itself, or those that a header is inline in."""
    return INLINE_IN.get(mutant.file, (mutant.file,))


def is_of_the_server(mutant):
    return mutant.file.startswith("src/server/")


def copy_tree():
    """The files of the working tree that git knows or would add, where they differ."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    names = [name for name in listed.decode().split("\0") if name]
    for name in names:
        source, copy = ROOT / name, TREE / name
        if not source.is_file():
            continue
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    # What was there once, and is compiled by a pattern.
    known = set(names)
    for folder in ("src", "tools", "tests"):
        for path in (TREE / folder).rglob("*"):
            if path.is_file() and str(path.relative_to(TREE)) not in known:
                path.unlink()


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (TEST_CPU_SECONDS_MAX, TEST_CPU_SECONDS_MAX))


def run_test(args):
    """(ok, output) of a program that a mutant may keep from ending."""
    return command(args, TEST_SECONDS_MAX, before=limit_cpu)


def command(args, timeout=None, env=None, cwd=TREE, before=None):
    """(ok, output)."""
    try:
        done = subprocess.run(
            args,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            env=env,
            preexec_fn=before,
        )
    except subprocess.TimeoutExpired:
        return False, "it did not end"
    return done.returncode == 0, done.stdout


def configure():
    args = ["cmake", "-S", ".", "-B", str(BUILD), "-G", "Ninja"]
    args.append("-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    if shutil.which("ccache"):
        args.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    ok, output = command(args)
    if not ok:
        sys.exit(output)


def build(targets, jobs):
    env = dict(os.environ, CCACHE_BASEDIR=str(TREE), CCACHE_NOHASHDIR="1")
    return command(["ninja", "-j", str(jobs), "-C", str(BUILD), *targets], env=env)


def program(name):
    return str(BUILD / "tests" / "sim" / name if name == "sim_test" else BUILD / name)


def commands_of(target):
    """What ninja would run to make a target, each as a list of words."""
    out = subprocess.run(
        ["ninja", "-C", str(BUILD), "-t", "commands", target],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [shlex.split(line) for line in out.splitlines()]


def compile_mutated(source, commands):
    """The object of one source, without optimisation: it is compiled once and run for a second."""
    for words in commands:
        if str(TREE / source) in words or f"../../{source}" in words:
            break
    else:
        return None, f"{source} is not compiled"
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    at = words.index("-o")
    mutated = str(BUILD / "mutant" / (source.replace("/", "_") + ".o"))
    kept = [word for i, word in enumerate(words[:at]) if word not in UNWANTED]
    skipped = {"-MD", "-MT", "-MF"}
    plain, i = [], 0
    while i < len(kept):
        if kept[i] in skipped:
            i += 1 if kept[i] == "-MD" else 2
            continue
        plain.append(kept[i])
        i += 1
    ok, output = command([*plain, "-O0", "-o", mutated, *words[at + 2 :]], cwd=BUILD)
    return (mutated, "") if ok else (None, output)


def link_with(objects, name):
    """The program, with mutated objects before the libraries that have the right ones."""
    words = commands_of(name)[-1]
    # CMake's link commands begin with ": &&" and end with "&& :".
    words = [word for word in words if word not in (":", "&&")]
    at = words.index("-o")
    linked = str(BUILD / "mutant" / name)
    faster = ["-fuse-ld=lld", "-Wl,--strip-debug"] if shutil.which("ld.lld") else []
    args = [*words[:at], *faster, *objects, "-o", linked, *words[at + 2 :]]
    ok, output = command(args, cwd=BUILD)
    return (linked, "") if ok else (None, output)


def first_failure(output):
    found = re.search(r"\[  FAILED  \] ([\w/.]+)", output)
    if found:
        return found.group(1)
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it ended without a word"


def run_unit(mutant, objects, options):
    for name in unit_programs(mutant):
        linked, output = link_with(objects, name)
        if linked is None:
            return NO_BUILD, output
        ok, output = run_test([linked, *FIRST_FAILURE, UNIT_FILTER])
        if not ok:
            return first_failure(output), output
    return None, ""


def run_sim(mutant, objects, options):
    if is_of_the_server(mutant):
        return None, ""
    linked, output = link_with(objects, "sim_test")
    if linked is None:
        return NO_BUILD, output
    ok, output = run_test([linked, *FIRST_FAILURE])
    return (None, "") if ok else (first_failure(output), output)


def run_contamination(mutant, objects, options):
    linked, output = link_with(objects, "quire")
    if linked is None:
        return NO_BUILD, output
    args = [sys.executable, "tests/e2e/contamination.py", "--binary", linked]
    args += ["--requests", str(options.requests)]
    ok, output = command(args, TEST_SECONDS_MAX)
    return (None, "") if ok else (first_failure(output), output)


RUN = {"unit": run_unit, "sim": run_sim, "contamination": run_contamination}


def plant(mutant):
    path = TREE / mutant.file
    text = path.read_text()
    wrong = text
    for find, put in mutant.edits:
        wrong = wrong.replace(find, put)
    path.write_text(wrong)
    return text


def judge(mutant, options):
    """What came of one mutant."""
    began = time.monotonic()
    text = plant(mutant)
    killed_by, test = None, None
    try:
        objects = [compile_mutated(source, options.commands) for source in sources_of(mutant)]
        missing = [output for compiled, output in objects if compiled is None]
        if missing:
            test = NO_BUILD
            print(missing[0], file=sys.stderr)
        for tier in options.tiers.split(",") if not missing else ():
            test, output = RUN[tier](mutant, [compiled for compiled, _ in objects], options)
            if test is not None:
                # One that does not link has shown nothing.
                killed_by = None if test == NO_BUILD else tier
                break
    finally:
        (TREE / mutant.file).write_text(text)
    return {
        "name": mutant.name,
        "classes": list(mutant.classes),
        "what": mutant.what,
        "file": mutant.file,
        "killed_by": killed_by,
        "test": test,
        "seconds": round(time.monotonic() - began, 1),
    }


def misplaced():
    """Mutants whose text does not occur exactly once."""
    names = [mutant.name for mutant in MUTANTS]
    wrong = [f"{name}: two mutants have this name" for name in set(names) if names.count(name) > 1]
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text()
        for find, put in mutant.edits:
            n = text.count(find)
            if n != 1 or find == put:
                wrong.append(f"{mutant.name}: a text of it is {n} times in {mutant.file}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--tiers", default=",".join(TIERS))
    parser.add_argument("--requests", type=int, default=400, help="of the tier `contamination`")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--check", action="store_true", help="only that every text is there, once")
    options = parser.parse_args()
    wrong = misplaced()
    if wrong or options.check:
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    wanted = options.only.split(",") if options.only else [mutant.name for mutant in MUTANTS]
    copy_tree()
    configure()
    targets = {name for mutant in MUTANTS for name in unit_programs(mutant)}
    targets |= {"sim_test"} if "sim" in options.tiers else set()
    targets |= {"quire"} if "contamination" in options.tiers else set()
    ok, output = build(sorted(targets), options.jobs)
    if not ok:
        sys.exit(output)
    (BUILD / "mutant").mkdir(exist_ok=True)
    options.commands = [words for name in sorted(targets) for words in commands_of(name)]
    results = []
    for mutant in MUTANTS:
        if mutant.name not in wanted:
            continue
        results.append(judge(mutant, options))
        last = results[-1]
        if not options.json:
            print(f"{last['name']}: {last['killed_by'] or 'SURVIVED'} ({last['test']})", flush=True)
    killed = sum(result["killed_by"] is not None for result in results)
    survivors = [result["name"] for result in results if result["killed_by"] is None]
    if options.json:
        tiers = {t: sum(r["killed_by"] == t for r in results) for t in TIERS}
        out = {"mutants": len(results), "killed": killed, "score": killed / len(results)}
        print(json.dumps({**out, "by_tier": tiers, "survivors": survivors, "results": results}))
    else:
        print(f"{killed} of {len(results)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
