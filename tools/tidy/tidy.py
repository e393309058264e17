#!/usr/bin/env python3
"""Quire's style test: the rules of CONTRIBUTING.md that a program can check.

Usage: tools/tidy/tidy.py [--json] [ROOT]     exits 0 when clean, 1 with one line a finding.

Reads the files that git tracks (and those it does not ignore). Each rule is a function from a file
to findings, listed in RULES; exemptions are in EXEMPT, with a reason each. That list only shrinks.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
from pathlib import Path

LINE_COLUMNS_MAX = 100
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 5
TRACKED_BYTES_MAX = 40_000_000
FILE_BYTES_MAX = 4_000_000

# (rule, path): reason.
EXEMPT = {
    ("file-bytes", "models/kimi-nano/model.safetensors"): "the weights of the model that tests run",
}

# Libraries that only their wrapper may see: header prefix -> files that may include it.
WRAPPED = {
    "nlohmann/": {"src/base/json.h", "src/base/json_fwd.h"},
    "spdlog/": {"src/base/log.cc"},
    "prometheus/": {"src/server/metrics.cc", "src/server/metrics.h"},
    "CLI/": {"tools/commands.h"},
}
BOOST_FILES_MAX = 4

BANNED = [
    (r"\bshared_ptr\b", "no shared_ptr: own by value or unique_ptr", {"src/base/log.cc"}),
    (r"\bmake_shared\b", "no shared_ptr: own by value or unique_ptr", {"src/base/log.cc"}),
    (r"\bthread_local\b", "no thread-locals: a function uses what it is given", set()),
    (r"\bthrow\b", "no throw: return a Result, or CHECK", set()),
    (r"\bgetenv\b", "no environment variables: behaviour comes from flags", set()),
    (r"\bstd::(rand|random_device|mt19937)\b", "randomness is injected: base/rng.h", set()),
    (r"\bsystem_clock::now\b", "time is injected: base/clock.h", {"tools/serve.cc"}),
    (r"\bstd::async\b", "no hidden threads: base/thread_pool.h", set()),
    (r"\bTempDir\s*\(", "tests beside each other share it: base/temp_folder.h", set()),
    (r"\b(malloc|calloc|realloc)\s*\(", "memory comes from a Buffer or a container", set()),
    (r"\b(TODO|FIXME|XXX)\b", "no promises in the code: an issue, or do it now", set()),
    (r"(?<!operator )\bnew\s+[A-Za-z_:]+[\s({\[]", "no bare new: make_unique", set()),
    (r"(?<!= )\bdelete\s+[A-Za-z_]", "no bare delete", set()),
]
BANNED_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|manager|impl|misc|common)(_|\.|$)")

# Words that belong to a workshop, not to the software. Built so that this file passes its own test.
FOREIGN_WORDS = re.compile(
    "|".join(["sub" + "agent", r"\.lib" + "rary/", "/wo" + "rk/", "/ro" + "ot/"])
)
CUDA_HEADER = re.compile(r"(cuda|cublas|nvrtc|cutlass|cute/|nccl|cub/|thrust/)")


def is_cpp(path):
    return path.suffix in {".h", ".cc", ".cu", ".cuh"}


def is_test(path):
    return path.name.endswith("_test.cc") or path.parts[0] == "tests"


def strip_cpp(text):
    """The text with comments and string contents blanked, line structure kept."""

    def blank(match):
        token = match.group(0)
        if token.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", token)
        quote = token[-1]
        inner = re.sub(r"[^\n]", " ", token[1:-1])
        return quote + inner + quote

    pattern = (
        r'R"(?P<tag>[^(\s]*)\((?:.|\n)*?\)(?P=tag)"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"
    )
    return re.sub(pattern, blank, text)


class File:
    def __init__(self, root, path):
        self.path = Path(path)
        self.data = (root / path).read_bytes()
        self.text = None if b"\0" in self.data else self.data.decode("utf-8", "replace")
        self.code = strip_cpp(self.text) if self.text is not None and is_cpp(self.path) else None
        self.lines = [] if self.text is None else self.text.split("\n")


def rule_columns(file, tree):
    if file.code is None and file.path.suffix not in {".py", ".cmake", ".sh"}:
        return
    # The tables of text that models learn from are not folded.
    if "recipe" in file.path.parts:
        return
    for number, line in enumerate(file.lines, 1):
        if len(line) > LINE_COLUMNS_MAX and "http" not in line:
            yield number, f"{len(line)} columns, expected at most {LINE_COLUMNS_MAX}"


def rule_ascii(file, tree):
    if file.code is None or is_test(file.path):
        return
    for number, line in enumerate(file.lines, 1):
        if not line.isascii():
            yield number, "not ASCII: write an escape"


def rule_file_lines(file, tree):
    if file.code is not None and len(file.lines) > FILE_LINES_MAX:
        yield 1, f"{len(file.lines)} lines, expected at most {FILE_LINES_MAX}"


def functions(code):
    """(first line, last line, header) of each function body of a clang-formatted file."""
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if not line.endswith("{") or line.lstrip().startswith(("}", "#")):
            continue
        indent = len(line) - len(line.lstrip())
        if indent > 2:
            continue
        first = number
        while first > 0 and lines[first].count(")") > lines[first].count("("):
            first -= 1
        header = " ".join(part.strip() for part in lines[first : number + 1])
        if "(" not in header or re.match(r"(class|struct|enum|union|namespace|extern)\b", header):
            continue
        if re.match(r"(if|for|while|switch|else|do)\b", header):
            continue
        closing = " " * indent + "}"
        body = range(number + 1, len(lines))
        last = next((i for i in body if lines[i].startswith(closing)), None)
        if last is not None:
            yield first + 1, last + 1, header


def rule_function_lines(file, tree):
    if file.code is None or is_test(file.path) or file.path.suffix in {".cu", ".cuh"}:
        return
    # The forward pass is straight-line and may be longer (design: at most 130).
    for first, last, header in functions(file.code):
        limit = 130 if "forward" in header and "model" in file.path.parts else FUNCTION_LINES_MAX
        if last - first + 1 > limit:
            yield first, f"a function of {last - first + 1} lines, expected at most {limit}"


def rule_parameters(file, tree):
    if file.code is None or is_test(file.path):
        return
    for first, _, header in functions(file.code):
        match = re.search(r"[A-Za-z_0-9>~]\s*\((.*)\)[^()]*\{$", header)
        if match is None or "operator()" in header:
            continue
        depth, count = 0, 1 if match.group(1).strip() else 0
        for char in match.group(1):
            depth += char in "(<[{"
            depth -= char in ")>]}"
            if depth < 0:
                break
            count += char == "," and depth == 0
        if count > PARAMETERS_MAX:
            yield first, f"{count} parameters, expected at most {PARAMETERS_MAX}: use a struct"


def rule_header(file, tree):
    if file.path.suffix != ".h":
        return
    if not file.text.startswith("//"):
        yield 1, "a header opens with what the thing is"
    # Highway includes an -inl.h once for each instruction set.
    if not file.path.name.endswith("-inl.h") and not re.search(r"^#pragma once$", file.text, re.M):
        yield 1, "missing #pragma once"


def includes(file):
    for number, line in enumerate(file.lines, 1):
        match = re.match(r'#include ([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def rule_layers(file, tree):
    if file.code is None or file.path.parts[0] != "src":
        return
    here = file.path.parts[1]
    if here not in tree.layers:
        yield 1, f"folder src/{here} is not in src/LAYERS"
        return
    for number, kind, target in includes(file):
        folder = target.split("/")[0]
        if kind == "<":
            if CUDA_HEADER.match(target) and here != "cuda":
                yield number, f"{target}: only src/cuda includes a CUDA header"
            continue
        if folder not in tree.layers:
            yield number, f'"{target}" does not begin with a folder of src/LAYERS'
        elif folder != here and tree.layers[folder] >= tree.layers[here]:
            yield number, f"src/{here} may not include {target}: src/LAYERS puts it not below"
        elif here == "server" and folder in {"ops", "cpu", "cuda"}:
            yield number, f"the server does not see {folder}"
        elif here in {"model", "engine", "disagg"} and folder in {"cpu", "cuda"}:
            yield number, f"{here} sees ops/backend.h, never {folder}"


def rule_wrapped(file, tree):
    if file.code is None:
        return
    for number, kind, target in includes(file):
        for prefix, allowed in WRAPPED.items():
            if target.startswith(prefix) and str(file.path) not in allowed:
                yield number, f"<{target}> is seen only by {', '.join(sorted(allowed))}"


def rule_banned(file, tree):
    if file.code is None:
        return
    # unique_ptr<T>(new T(...)) is how a private constructor is reached.
    code = re.sub(r"(unique_ptr<\w+>(?: \w+)?\(\s*)new\b", r"\1   ", file.code)
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, reason, allowed in BANNED:
            if str(file.path) not in allowed and re.search(pattern, line):
                yield number, reason
    for number, line in enumerate(file.lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield number, "no promises in the code: an issue, or do it now"


def rule_names(file, tree):
    if file.code is not None and BANNED_NAMES.search(file.path.name):
        if "cuda/common" not in str(file.path):
            yield 1, "a file is named for what it defines"


def types(file):
    """(line, qualified name) of each type that a file defines at namespace scope, unnamed
    namespaces left out. Of a clang-formatted file: neither they nor their types are indented."""
    spaces = []
    for number, (line, code) in enumerate(zip(file.lines, file.code.split("\n")), 1):
        space = re.match(r"(?:inline )?namespace ?([\w:]*) ?\{$", code.rstrip())
        if space:
            spaces.append(space.group(1))
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        kinds = r"(?:struct|class|union|enum(?: class)?)"
        made = re.match(kinds + r" (\w+)(?: final)?(?: :[^:].*)? \{", code)
        if made and "" not in spaces:
            yield number, "::".join([*spaces, made.group(1)])


def rule_one_definition(file, tree):
    """Two types of one name are one symbol to the linker, which takes either one's functions and
    tells nobody."""
    if file.code is None or file.path.parts[0] not in {"src", "tools"} or is_test(file.path):
        return
    for number, name in types(file):
        others = tree.types[name] - {str(file.path)}
        if others:
            yield number, f"{name} is defined in {', '.join(sorted(others))}, too"


def rule_foreign_words(file, tree):
    for number, line in enumerate(file.lines, 1):
        if FOREIGN_WORDS.search(line):
            yield number, "a path or a word that does not belong to the project"


def rule_file_bytes(file, tree):
    if len(file.data) > FILE_BYTES_MAX:
        yield 1, f"{len(file.data)} bytes, expected at most {FILE_BYTES_MAX}"


def rule_markdown(file, tree):
    if file.path.suffix != ".md":
        return
    fence, titles = False, 0
    for number, line in enumerate(file.lines, 1):
        fence ^= line.startswith("```")
        if not fence and line.startswith("# "):
            titles += 1
        for target in [] if fence else re.findall(r"\]\((?!http|#|mailto)([^)#]+)", line):
            if not (tree.root / file.path.parent / target).exists():
                yield number, f"a link to {target}, which is not there"
    if titles != 1:
        yield 1, f"{titles} titles, expected one"


def tests_of(file):
    """(suite, case) of GoogleTest, (file, function) of pytest."""
    if file.text is None or not is_test(file.path):
        return
    if file.code is not None:
        yield from re.findall(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", file.code, re.MULTILINE)
    elif file.path.suffix == ".py":
        for name in re.findall(r"^def (test_\w+)", file.text, re.MULTILINE):
            yield file.path.name, name


GTEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
PYTEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def rule_named_tests(file, tree):
    """A document may name a test only when there is one: `Suite.Case` or `test_x.py::test_y`."""
    if file.path.suffix != ".md":
        return
    for number, line in enumerate(file.lines, 1):
        for pattern in (GTEST, PYTEST):
            for name in pattern.findall(line):
                if name not in tree.tests:
                    yield number, f"no such test: {name[0]}, {name[1]}"


RULES = {
    "columns": rule_columns,
    "ascii": rule_ascii,
    "file-lines": rule_file_lines,
    "function-lines": rule_function_lines,
    "parameters": rule_parameters,
    "header": rule_header,
    "layers": rule_layers,
    "wrapped": rule_wrapped,
    "banned": rule_banned,
    "names": rule_names,
    "one-definition": rule_one_definition,
    "foreign-words": rule_foreign_words,
    "file-bytes": rule_file_bytes,
    "markdown": rule_markdown,
    "named-tests": rule_named_tests,
}


def tree_findings(tree):
    """Rules about the tree as a whole."""
    total = sum(len(file.data) for file in tree.files)
    if total > TRACKED_BYTES_MAX:
        yield "tree-bytes", ".", 1, f"{total} bytes tracked, expected at most {TRACKED_BYTES_MAX}"
    boost = sorted(
        str(file.path)
        for file in tree.files
        if file.code and not is_test(file.path)
        and any(target.startswith("boost/") for _, _, target in includes(file))
    )
    if len(boost) > BOOST_FILES_MAX:
        found = f"Boost in {len(boost)} files, at most {BOOST_FILES_MAX}: {', '.join(boost)}"
        yield "boost", ".", 1, found
    included = {target for f in tree.files if f.code for _, _, target in includes(f)}
    for file in tree.files:
        path = str(file.path)
        if path.startswith("src/") and path.endswith(".h") and path[4:] not in included:
            yield "orphan", path, 1, "a header that nobody includes"


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=root, check=True, capture_output=True,
        ).stdout.decode().split("\0")
        names = sorted({name for name in listed if name and (self.root / name).is_file()})
        self.files = [File(self.root, name) for name in names]
        self.tests = {test for file in self.files for test in tests_of(file)}
        self.types = collections.defaultdict(set)  # qualified name -> files
        for file in self.files:
            if file.code is not None and file.path.parts[0] in {"src", "tools"}:
                for _, name in types(file):
                    self.types[name].add(str(file.path))
        self.layers = {}
        for line in (self.root / "src/LAYERS").read_text().splitlines():
            if line and not line.startswith("#"):
                level, folder = line.split()
                self.layers[folder] = int(level)

    def findings(self):
        for file in self.files:
            for name, rule in RULES.items():
                if (name, str(file.path)) in EXEMPT:
                    continue
                for line, message in rule(file, self):
                    yield name, str(file.path), line, message
        yield from tree_findings(self)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="findings as a JSON list")
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parents[2])
    args = parser.parse_args()
    tree = Tree(args.root)
    found = [
        {"rule": rule, "file": path, "line": line, "message": message}
        for rule, path, line, message in tree.findings()
    ]
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        for item in found:
            print("{file}:{line}: {message} [{rule}]".format(**item))
        print(f"tidy: {len(tree.files)} files, {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
