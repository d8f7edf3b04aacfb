#!/usr/bin/env python3
"""Plants one violation of each house rule in a small tree of its own, and expects tidy.py to name it and nothing else."""

import json
import pathlib
import tempfile
import unittest

import cpp_scan
import tidy
import wire_numbers

CLEAN = {
    "core/a.h": "#pragma once\n\n#include <vector>\n\ninline int One() { return 1; }\n",
    "core/a.cc": '#include "core/a.h"\n',
    "core/part.h": "#pragma once\nenum class PartResult : int {\n  kOk = 0,  // Fine.\n  kMiss = 1,\n};\n",
    "transport/frame.h": "#pragma once\nenum class FrameType : int { kHello = 1, kPing = 4 };\nenum FrameFlag : int { kFlagInline = 1 };\n",
    "proto/x.proto": "message A {\n  message B { string b = 1; }\n  string a = 1;\n  oneof o { uint64 c = 2; }\n  repeated B d = 3;\n}\n"
                     "enum E { E_ZERO = 0; }\n",
    "client/include/cistern/client.h": '#pragma once\n#include <string>\n#include "cistern/status.h"\n',
    "client/include/cistern/status.h": "#pragma once\n",
    "client/use.cc": '#include "core/a.h"\n#include "cistern/client.h"\n',
    "client/python/module.py": "def load(model):\n    return model.eval()\n",
}


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for path, text in CLEAN.items():
            self.write(path, text)
        (self.root / "tests/lint").mkdir(parents=True)
        tidy.Lint(self.root).check_wire_numbers(record=True)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def complaints(self):
        return tidy.Lint(self.root).run()

    def expect(self, rule, path, text, line=1):
        """Exactly one complaint, about this rule at this place, and none once the file is as it was."""
        before = CLEAN.get(path)
        self.write(path, text)
        found = self.complaints()
        self.assertEqual([c.split(": ")[:2] for c in found], [[f"{path}:{line}", rule]], found)
        (self.root / path).unlink() if before is None else self.write(path, before)
        self.assertEqual(self.complaints(), [])

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.complaints(), [])

    def test_a_source_includes_its_own_header_first(self):
        self.expect("own-header", "core/a.cc", "int a;\n")
        self.expect("own-header", "core/a.cc", '// What.\n#include <vector>\n#include "core/a.h"\n', 2)

    def test_rooms_include_what_they_may(self):
        for path, target in (("core/b.cc", "proto/x.h"), ("proto/b.cc", "transport/frame.h"), ("transport/b.cc", "cache_node/x.h"),
                             ("cache_node/b.cc", "router/x.h"), ("router/b.cc", "transport/frame.h"), ("client/b.cc", "cache_node/x.h"),
                             ("client/b.cc", "router/x.h"), ("kernels/b.cu", "core/a.h"), ("cache_node/b.cc", "cistern/client.h")):
            self.expect("room", path, f'\n#include "{target}"\n', 2)
        self.write("kernels/b.cu", '#include "core/kv_layout.h"\n')
        self.write("tests/b.cc", '#include "router/x.h"\n#include "cache_node/x.h"\n')
        self.assertEqual(self.complaints(), [])

    def test_ucx_stays_in_its_folder(self):
        self.expect("room", "transport/b.cc", "#include <ucp/api/ucp.h>\n")
        self.write("transport/ucx/b.cc", "#include <ucp/api/ucp.h>\n")
        self.assertEqual(self.complaints(), [])

    def test_heavy_headers_do_not_travel_between_rooms(self):
        self.write("client/c.cc", '#include "proto/mid.h"\n')
        self.write("proto/mid.h", '#pragma once\n#include "proto/end.h"\n')
        self.expect("heavy-header", "proto/end.h", "#pragma once\n#include <grpcpp/grpcpp.h>\n", 2)
        self.write("client/own.h", "#pragma once\n#include <rocksdb/db.h>\n")
        self.assertEqual(self.complaints(), [])

    def test_installed_headers_are_plain(self):
        self.expect("installed-header", "client/include/cistern/status.h", '#pragma once\n#include "absl/status/status.h"\n', 2)
        self.expect("installed-header", "client/include/cistern/status.h", '#pragma once\n#include "core/a.h"\n', 2)

    def test_includes_start_at_the_root(self):
        self.expect("include-root", "core/b.cc", '#include "a.h"\n')

    def test_headers_begin_with_pragma_once(self):
        self.expect("pragma-once", "core/b.h", "// Words.\n#include <vector>\n#pragma once\n")

    def test_files_and_functions_have_a_size(self):
        self.expect("file-size", "core/b.cc", "int x;\n" * 401)
        self.write("core/b.cc", "int x;\n" * 400)
        self.assertEqual(self.complaints(), [])
        body = "  Call();\n" * 69
        self.expect("function-size", "core/b.cc", "namespace n {\n\nint F(int a) {\n" + body + "}\n}\n", 3)
        self.write("core/b.cc", "int F(int a) {\n" + body[:-10] + "}\n")
        self.assertEqual(self.complaints(), [])
        self.expect("function-size", "client/python/b.py", "def f():\n" + "    x = 1\n" * 70)

    def test_paths_of_one_machine_are_named(self):
        self.expect("machine-path", "core/b.cc", f'const char* p = "/{"home"}/me/x";\n')
        self.expect("machine-path", "deploy/b.sh", f"cd /{'work'}/main\n")
        self.write("core/b.cc", "// build/root/x, ${HOME}/work/x\n")
        self.assertEqual(self.complaints(), [])

    def test_S03_nothing_is_unpickled_or_executed(self):
        for line in ("import pickle", "from marshal import loads", "import pickle as p, os", "eval('1')", "exec('1')",
                     "yaml.load(f)", "from yaml import load", "torch.load(f)", "np.load(f, allow_pickle=True)"):
            self.expect("S03", "client/python/b.py", line + "\n")
        self.write("client/python/b.py", "yaml.safe_load(f)\nmodel.eval()\nnp.load(f, allow_pickle=False)\n# pickle\n")
        self.assertEqual(self.complaints(), [])

    def test_F61_numbers_are_never_given_twice(self):
        proto = CLEAN["proto/x.proto"]
        self.expect("F61", "proto/x.proto", proto.replace("string a = 1", "string z = 1"))
        self.expect("F61", "proto/x.proto", proto.replace("string a = 1", "bytes a = 1"))
        self.expect("F61", "proto/x.proto", proto.replace("  string a = 1;\n", ""))
        self.expect("F61", "proto/x.proto", proto.replace("string a = 1;", "string a = 1; string n = 9;"))
        self.expect("F61", "proto/x.proto", proto.replace("uint64 c = 2;", "uint64 c = 2; reserved 2;"))
        self.expect("F61", "proto/x.proto", proto.replace("E_ZERO = 0;", "E_ZERO = 0; E_TWO = 0;"))
        self.expect("F61", "transport/frame.h", CLEAN["transport/frame.h"].replace("kPing = 4", "kPong = 4"))
        self.write("proto/x.proto", proto.replace("string a = 1;", "reserved 1;").replace("string b = 1;", "reserved 1 to 3;"))
        self.assertEqual(self.complaints(), [])

    def test_F61_a_record_never_changes(self):
        self.write("proto/x.proto", CLEAN["proto/x.proto"].replace("string a = 1", "string z = 1"))
        tidy.Lint(self.root).check_wire_numbers(record=True)
        recorded = json.loads((self.root / "tests/lint/wire_numbers.json").read_text())
        self.assertEqual(recorded["proto/x.proto"]["A"]["1"], "string a")

    def test_tests_do_not_sleep(self):
        self.expect("test-sleep", "core/b_test.cc", "void F() {\n  std::this_thread::sleep_for(x);\n}\n", 2)
        self.expect("test-sleep", "tests/sim/b.cc", "void F() { ::usleep(5); }\n")
        self.write("core/b_test.cc", '// sleep_for\nconst char* p = "usleep(1)";\nvoid F() { node.sleep(1); }\n')
        self.write("core/b.cc", "void F() { usleep(5); }\n")
        self.assertEqual(self.complaints(), [])

    def test_F29_messages_from_outside_are_parsed_within_bounds(self):
        self.expect("plain-parse", "core/b.cc", "bool F() { return m.ParseFromString(s); }\n")
        self.expect("plain-parse", "tests/fuzz/b_fuzz.cc", "bool F() { return m.ParseFromArray(s, 1); }\n")
        self.write("core/b.cc", "// ParseFromString\nbool F() { return ParseBounded(m, s); }\n")
        self.write("tests/fuzz/b_fuzz.cc", "")
        self.write("proto/b_test.cc", "bool F() { return m.ParseFromString(s); }\n")
        self.assertEqual(self.complaints(), [])

    def test_decisions_have_numbers_of_their_own(self):
        self.write("docs/adr/0001-a.md", "# 0001: a\n")
        self.expect("adr-number", "docs/adr/0001-b.md", "# 0001: b\n")
        self.expect("adr-number", "docs/c.md", "See docs/adr/" + "9999.\n")
        self.write("docs/c.md", "See docs/adr/0001.\n")
        self.assertEqual(self.complaints(), [])

    def test_the_project_speaks_of_itself_alone(self):
        self.expect("neutral-words", "docs/b.md", "Written by Cla" + "ude.\n")

    def test_a_rule_is_waived_with_a_reason_only(self):
        self.write("core/b_test.cc", "// lint: allow(test-sleep) because the kernel offers no event here\nvoid F() { ::usleep(5); }\n")
        self.assertEqual(self.complaints(), [])
        self.write("core/b_test.cc", "// lint: allow(test-sleep)\nvoid F() { ::usleep(5); }\n")
        self.assertEqual(len(self.complaints()), 1)

    def test_python_has_to_parse(self):
        self.expect("python", "client/python/b.py", "def f(:\n")


class CppScanTest(unittest.TestCase):
    def names(self, text):
        return [(name, lines) for _, lines, name in cpp_scan.functions(text)]

    def test_finds_functions_and_nothing_else(self):
        text = """
namespace a { namespace {
constexpr int kTable[] = {1, 2};
enum class E : int { kA };
struct S : T<int> {
  S(int x) : x_{x}, y_(x) {}
  void F() const noexcept override {
    auto f = [] { return 1; };
    if (x) { G(); }
  }
  auto G() -> absl::Status { return {}; }
 private:
  int x_ = 1;
};
template <typename T>
void H(T t) { char c = '{'; const char* s = "}"; /* } */ }  // }
#define M(x) do { x
TEST(A, B) {
  EXPECT_EQ(1, R"(})" == 1'000);
}
}}  // namespace
"""
        self.assertEqual(self.names(text), [("S", 1), ("F", 4), ("G", 1), ("H", 2), ("TEST", 3)])

    def test_counts_from_the_first_line_of_the_head(self):
        self.assertEqual(cpp_scan.functions("\n\nvoid F(int a,\n       int b) {\n}\n"), [(3, 3, "F")])


class WireNumbersTest(unittest.TestCase):
    def test_reads_nested_messages_and_maps(self):
        fields, reserved, complaints = wire_numbers.proto_numbers(
            'syntax = "proto3";\nmessage A { message B { map<string, uint64> m = 4; } reserved 2, 5 to 6; optional B b = 1; }\n'
            "service S { rpc X(A) returns (A); rpc Y(A) returns (stream A) { option z = 1; } }")
        self.assertEqual(fields, {"A.B": {4: "map<string, uint64> m"}, "A": {1: "B b"}})
        self.assertEqual(reserved, {"A": {2, 5, 6}})
        self.assertEqual(complaints, [])

    def test_wants_every_enumerator_numbered(self):
        _, _, complaints = wire_numbers.cpp_enum_numbers("enum class E : int { kA = 1, kB };", ["E", "F"])
        self.assertEqual(len(complaints), 2)


if __name__ == "__main__":
    unittest.main()
