#!/usr/bin/env python3
"""Every rule of tidy.py finds a planted fault, and leaves the mended file alone."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy  # noqa: E402

HEADER = "// A thing.\n#pragma once\n"
LONG_BODY = "".join("  x += 1;\n" for _ in range(80))

# rule, path, faulty text, mended text
CASES = [
    ("columns", "src/base/a.cc", "int " + "a" * 120 + ";\n", "int a;\n"),
    ("ascii", "src/base/a.cc", 'auto s = "é";\n', 'auto s = "\\xc3\\xa9";\n'),
    ("file-lines", "src/base/a.cc", "int a;\n" * 601, "int a;\n" * 500),
    ("function-lines", "src/base/a.cc", "void f(int x) {\n" + LONG_BODY + "}\n",
     "void f(int x) {\n  x += 1;\n}\n"),
    ("parameters", "src/base/a.cc", "void f(int a, int b, int c, int d, int e, int g) {\n}\n",
     "void f(std::map<int, int> a, int b, int c, int d, int e) {\n}\n"),
    ("header", "src/base/a.h", "#pragma once\n", HEADER),
    ("header", "src/base/a.h", "// A thing.\n", HEADER),
    ("layers", "src/base/a.cc", '#include "kv/pool.h"\n', '#include "base/result.h"\n'),
    ("layers", "src/server/a.cc", '#include "ops/linear.h"\n', '#include "engine/engine.h"\n'),
    ("layers", "src/model/a.cc", '#include "cpu/cpu_backend.h"\n', '#include "ops/backend.h"\n'),
    ("layers", "src/engine/a.cc", "#include <cuda_runtime.h>\n", "#include <vector>\n"),
    ("wrapped", "src/kv/a.cc", "#include <spdlog/spdlog.h>\n", '#include "base/log.h"\n'),
    ("banned", "src/kv/a.cc", "std::shared_ptr<int> p;\n", "std::unique_ptr<int> p;\n"),
    ("banned", "src/kv/a.cc", "throw 1;\n", "// A parser that would throw is wrapped.\n"),
    ("banned", "src/kv/a.cc", "int* p = new int(1);\n", "auto p = std::make_unique<int>(1);\n"),
    ("banned", "src/kv/a_test.cc", "f(testing::TempDir());\n", "f(folder.path());\n"),
    ("banned", "src/kv/a.cc", "delete p;\n", "A(const A&) = delete;\n"),
    ("banned", "src/kv/a.cc", "// TO" "DO: later\n", "// Done.\n"),
    ("names", "src/kv/page_utils.cc", "int a;\n", None),
    ("one-definition", "src/kv/a.h", HEADER + "\nnamespace quire {\nstruct Page {\n};\n}\n",
     HEADER + "\nnamespace quire {\nstruct OtherPage {\n};\n}\n"),
    ("foreign-words", "docs/a.md", "# A\n\nsee /wo" "rk/x\n", "# A\n\nsee x\n"),
    ("file-bytes", "docs/a.txt", "x" * 4_000_001, "x"),
    ("markdown", "docs/a.md", "# A\n\n# B\n", "# A\n\n## B\n"),
    ("markdown", "docs/a.md", "# A\n\n[b](b.md)\n", "# A\n\n[b](https://b)\n"),
    ("named-tests", "docs/a.md", "# A\n\n`Pool.Leaks` holds it.\n", "# A\n\nIt holds.\n"),
    ("named-tests", "docs/a.md", "# A\n\n`test_a.py::test_b`\n", "# A\n\n`test_a.py`\n"),
    ("orphan", "src/kv/lonely.h", HEADER, None),
]


def findings_of(path, text):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        subprocess.run(["git", "init", "-q", folder], check=True)
        (root / "src").mkdir()
        layers = (Path(__file__).resolve().parents[2] / "src/LAYERS").read_text()
        (root / "src/LAYERS").write_text(layers)
        (root / "src/base").mkdir()
        (root / "src/base/page.h").write_text(HEADER + "\nnamespace quire {\nclass Page {\n};\n}\n")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        return {rule for rule, name, _, _ in tidy.Tree(root).findings() if name == path}


class TidyTest(unittest.TestCase):
    def test_every_rule_finds_its_fault_and_accepts_the_mended_file(self):
        for rule, path, faulty, mended in CASES:
            with self.subTest(rule=rule, path=path):
                self.assertIn(rule, findings_of(path, faulty))
                if mended is not None:
                    self.assertNotIn(rule, findings_of(path, mended))

    def test_every_rule_has_a_case(self):
        self.assertEqual(set(tidy.RULES) - {case[0] for case in CASES}, set())

    def test_exemptions_name_files_that_exist(self):
        root = Path(__file__).resolve().parents[2]
        for _, path in tidy.EXEMPT:
            self.assertTrue((root / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
