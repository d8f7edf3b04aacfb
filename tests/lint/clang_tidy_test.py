#!/usr/bin/env python3
"""How clang_tidy.py puts files together and takes them apart, with a stand-in for clang-tidy that dislikes the word `finding`, and
two files of one name at a time."""

import pathlib
import tempfile
import unittest

import clang_tidy

STAND_IN = """#!/usr/bin/env python3
import pathlib, re, sys
whole = next(pathlib.Path(word) for word in sys.argv[1:] if word.endswith(".cc"))
text = whole.read_text()
texts = [pathlib.Path(p).read_text() for p in re.findall('#include "(/.*)"', text)] or [text]
print(len(texts))
collision = len(texts) > 1 and sum("hidden" in t for t in texts) > 1
sys.exit(collision or any("finding" in t for t in texts))
"""


class ClangTidyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / ".clang-tidy").write_text("HeaderFilterRegex: '.*/(core)/[^:]*\\.h$'\n")
        program = self.root / "tidy"
        program.write_text(STAND_IN)
        program.chmod(0o755)
        self.tidy = clang_tidy.Tidy(str(program), self.root, self.root / ".clang-tidy")

    def items(self, **texts):
        for name, text in texts.items():
            (self.root / f"{name}.cc").write_text(text)
        return [(self.root / f"{name}.cc", name, ("-O2",)) for name in texts]

    def test_flags_are_what_stands_in_a_compile_command(self):
        command = "/usr/bin/ccache c++ -I/a -isystem /b -DX=1 -O3 -Wall -std=c++20 -include /p.hxx -o x.o -c /r/x.cc"
        self.assertEqual(clang_tidy.flags_of(command), ("-I/a", "-isystem", "/b", "-DX=1", "-O3", "-std=c++20"))

    def test_files_that_declare_one_name_twice_are_kept_apart(self):
        items = self.items(a="constexpr int kMax = 1;\n", b="static int Count() {\n}\n", c="constexpr uint64_t kMax{2};\n", d="struct Count {\n};\n")
        names = sorted(sorted(key for _, key, _ in members) for members in clang_tidy.group(items))
        self.assertEqual(names, [["a", "b"], ["c", "d"]])
        self.assertEqual(len(clang_tidy.group([*items[:1], (*items[1][:2], ("-O3",))])), 2)

    def test_one_run_for_all_that_is_clean(self):
        results = self.tidy.look(self.items(a="int a;", b="int b;", c="int c;"))
        self.assertEqual([(key, code, output) for _, key, code, output, _ in results], [(k, 0, "3\n") for k in "abc"])

    def test_a_finding_is_said_of_its_file_alone(self):
        results = self.tidy.look(self.items(a="int a;", b="finding", c="int c;", d="int d;"))
        self.assertEqual([(key, code, output) for _, key, code, output, _ in results],
                         [("a", 0, "1\n"), ("b", 1, "1\n"), ("c", 0, "2\n"), ("d", 0, "2\n")])

    def test_a_collision_is_no_finding(self):
        results = self.tidy.look(self.items(a="hidden", b="hidden"))
        self.assertEqual([code for _, _, code, _, _ in results], [0, 0])


if __name__ == "__main__":
    unittest.main()
