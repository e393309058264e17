#!/usr/bin/env python3
"""With `--integrity off` the kernels that know of checks have the machine code of a source without.

    python3 tests/device/off_code.py [build/cuda]

Compiles each source twice with the build's own command: as it is, and with every statement of the
checks taken out of its text. Kernels are instantiated with an empty type where nothing is checked:
those must have the same instructions, byte by byte. Those that check must not, or the comparison
would show nothing. Needs nvcc and a configured build, and no device.
"""

import json
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# By source: the structs and functions that only a check has, the statements of the checks, and the
# names of the types that stand for "no check" and "check".
SOURCES = {
    "src/cuda/step/place_tokens.cu": {
        "blocks": ["struct NoGuard", "struct PageGuard", "bool is_guarded("],
        "statements": [r"if \(!p\.guard\.[^;]*;", r"Guard guard;",
                       r"if \(is_guarded\(args\.guard\)\) return [^;]*;", r",\s*\.guard = guard"],
        "off": "NoGuard",
        "on": "PageGuard",
        "kernels": 1,
    },
    "src/cuda/step/open_step.cu": {
        "blocks": ["struct NoMirror", "struct Mirror"],
        "statements": [r"p\.mirror\.[^;]*;", r"Kept mirror;",
                       r"launch_open\(context, args, Mirror\{[^;]*;", r",\s*\.mirror = mirror"],
        "off": "NoMirror",
        "on": "Mirror",
        "kernels": 1,
    },
}


def without_block(text, head):
    """`text` without the definition that begins with `head`."""
    begin = text.index(head)
    at = text.index("{", begin)
    depth = 0
    while True:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return text[:begin] + text[at + (text[at] == ";"):]


def without_checks(text, source):
    text = re.sub(r"//[^\n]*", "", text)
    for head in source["blocks"]:
        text = without_block(text, head)
    for pattern in source["statements"]:
        text, n = re.subn(pattern, "", text)
        if n == 0:
            sys.exit(f"off_code: nothing looks like {pattern}: its list is out of date")
    # What is left of them is a name.
    tag = f"struct {source['off']} {{}};\n"
    return text.replace("template <class", tag + "template <class", 1)


def sections(elf):
    """Section name to bytes, of an ELF file of 64 bits."""
    at, = struct.unpack_from("<Q", elf, 0x28)
    size, n, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, at + i * size) for i in range(n)]
    names = headers[names_index][4]
    out = {}
    for header in headers:
        begin = names + header[0]
        name = elf[begin:elf.index(b"\0", begin)].decode()
        # The name of a file's own namespace holds a hash, and its length stands before it.
        if own := re.search(r"(\d+)_GLOBAL__N__", name):
            name = name[:own.start()] + name[own.end(1) + int(own[1]):]
        out[name] = elf[header[4]:header[4] + header[5]]
    return out


def start_compile(command, source, folder):
    cubin = folder / (source.stem + ".cubin")
    words = shlex.split(command)
    words = words[1 if "ccache" in words[0] else 0:words.index("-c")]
    return cubin, subprocess.Popen([*words, "-cubin", str(source), "-o", str(cubin)], cwd=folder)


def kernels_of(cubin, type_name):
    """Kernel name to instructions, of those instantiated with the type."""
    mark = f"{len(type_name)}{type_name}E"
    return {name[len(".text."):]: code for name, code in sections(cubin.read_bytes()).items()
            if name.startswith(".text.") and mark in name}


def main():
    build = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/cuda")
    commands = {entry["file"]: entry["command"]
                for entry in json.loads((build / "compile_commands.json").read_text())}
    with tempfile.TemporaryDirectory() as folder:
        started = {}
        for name, source in SOURCES.items():
            for kind in ("whole", "without"):
                path = pathlib.Path(folder) / kind / name
                path.parent.mkdir(parents=True, exist_ok=True)
                text = (ROOT / name).read_text()
                path.write_text(text if kind == "whole" else without_checks(text, source))
                started[name, kind] = start_compile(commands[str(ROOT / name)], path, path.parent)
        for (name, kind), (_, process) in started.items():
            if process.wait() != 0:
                sys.exit(f"off_code: {name} ({kind}) does not compile")
        for name, source in SOURCES.items():
            off = kernels_of(started[name, "whole"][0], source["off"])
            on = kernels_of(started[name, "whole"][0], source["on"])
            without = kernels_of(started[name, "without"][0], source["off"])
            if len(off) != source["kernels"] or len(on) != len(off):
                sys.exit(f"off_code: {name}: {len(off)} and {len(on)} kernels, expected "
                         f"{source['kernels']} of each kind")
            if off != without:
                sys.exit(f"off_code: {name}: the code with `off` is not that without checks: " +
                         ", ".join(k for k in off if off[k] != without.get(k)))
            if any(code in off.values() for code in on.values()):
                sys.exit(f"off_code: {name}: what checks has the code of what does not")
            for kernel, code in off.items():
                print(f"{kernel}: {len(code)} bytes of code, equal")


if __name__ == "__main__":
    main()
