#!/usr/bin/env python3
"""The house rules that compilers do not check (CONTRIBUTING.md). Prints `file:line: rule: what` and exits 1 when any is broken.

A rule that hurts one case is waived there, with the reason, on the line or the one above: lint: allow(rule) because ...
`--record` adds new wire numbers to wire_numbers.json; `--list cpp` prints the C++ files, for other tools."""

import argparse
import ast
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_scan  # noqa: E402
import wire_numbers  # noqa: E402

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# Which rooms a room may include besides itself.
ROOMS = {
    "core": set(),
    "proto": {"core"},
    "transport": {"core"},
    "gpu": {"core"},
    "kernels": set(),  # And core/kv_layout.h, below.
    "cache_node": {"core", "proto", "transport", "gpu"},
    "router": {"core", "proto"},
    "client": {"core", "proto", "transport", "gpu", "kernels"},
    "tests": {"core", "proto", "transport", "gpu", "kernels", "cache_node", "router", "client"},
}
FILE_EXCEPTIONS = {("kernels", "core/kv_layout.h")}
CPP = (".cc", ".h", ".cu", ".cuh")
TEXT = CPP + (".py", ".sh", ".cmake", ".txt", ".md", ".proto", ".toml", ".yml", ".yaml")
SIZED = CPP + (".py", ".sh", ".cmake", ".proto")
SKIPPED_FOLDERS = {".git", ".cache", "__pycache__", "corpus", "testdata", "third_party"}
# Libraries whose headers must not reach another room through ours, and the one folder where UCX is used.
HEAVY = re.compile(r"^(?:grpc|grpcpp|rocksdb|ucp|ucs|uct|cuda|cuda_runtime)(?:[./_]|$)")
UCX = re.compile(r"^uc[pst]/")

MACHINE_PATH = re.compile(r"(?<![\w.$}-])/(?:home|root|work|Users|mnt)/[\w.]")
ADR = re.compile(r"\bdocs/adr/(\d{4})")
SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|SleepFor)\b|(?<![\w.:>])sleep\s*\(")
# The project speaks of itself alone. Written in two halves so that this file passes its own rule.
PLAIN_PARSE = re.compile(r"\b(?:Parse|Merge)(?:Partial)?From(?:String|Array|Cord|Istream|ZeroCopyStream|CodedStream|BoundedZeroCopyStream|FileDescriptor)\b")
NEUTRAL = re.compile(r"\b(?:" + "|".join(["Cla" "ude", "Anth" "ropic", "Chat" "GPT", "Open" "AI Codex", "language mo" "del wrote",
                                          "sub" "agent", "the bri" "ef says", "as reque" "sted by", "Co-Autho" "red-By"]) + r")\b", re.IGNORECASE)
UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
UNSAFE_CALLS = {"eval", "exec"}
UNSAFE_METHODS = {("yaml", "load"), ("yaml", "unsafe_load"), ("torch", "load")}


class Lint:
    """One pass over one source tree."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.complaints = []
        self.texts = {}
        for folder, folders, names in os.walk(self.root):
            here = pathlib.Path(folder).relative_to(self.root)
            folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not (here == pathlib.Path(".") and f.startswith("build")))
            for name in sorted(names):
                if name.endswith(TEXT):
                    self.texts[(here / name).as_posix()] = (self.root / here / name).read_text(encoding="utf-8", errors="replace")

    def say(self, path, line, rule, what):
        lines = self.texts.get(path, "").split("\n")
        nearby = lines[max(0, line - 2):line]
        if not any(f"lint: allow({rule}) because" in text for text in nearby):
            self.complaints.append(f"{path}:{line}: {rule}: {what}")

    def run(self):
        for path, text in self.texts.items():
            self.check_text(path, text)
            if path.endswith(CPP):
                self.check_cpp(path, text)
            if path.endswith(".py"):
                self.check_python(path, text)
        self.check_heavy_headers()
        self.check_decisions()
        self.check_wire_numbers()
        return self.complaints

    def check_text(self, path, text):
        lines = text.split("\n")
        count = len(lines) - (1 if lines[-1] == "" else 0)
        if path.endswith(SIZED) and count > FILE_LINES_MAX:
            self.say(path, 1, "file-size", f"{count} lines, at most {FILE_LINES_MAX}: a second noun is hiding inside")
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                self.say(path, number, "machine-path", MACHINE_PATH.search(line).group(0) + "...")
            if NEUTRAL.search(line):
                self.say(path, number, "neutral-words", NEUTRAL.search(line).group(0))

    def check_decisions(self):
        """A decision record has a number of its own, and whoever names one names one that is there."""
        seen = {}
        for path in self.texts:
            if path.startswith("docs/adr/"):
                number = path.removeprefix("docs/adr/")[:4]
                if number in seen:
                    self.say(path, 1, "adr-number", f"{number} is {seen[number]} already")
                seen.setdefault(number, path)
        for path, text in self.texts.items():
            for number, line in enumerate(text.split("\n"), 1):
                for named in ADR.findall(line):
                    if named not in seen:
                        self.say(path, number, "adr-number", f"there is no docs/adr/{named}")

    def check_cpp(self, path, text):
        room = path.split("/")[0]
        code = cpp_scan.blank(text)
        if path.endswith(".h"):
            directives = [line.strip() for line in text.split("\n") if line.strip().startswith("#")]
            if not directives or directives[0] != "#pragma once":
                self.say(path, 1, "pragma-once", "the first directive of a header is #pragma once")
        for line, lines, name in cpp_scan.functions(text):
            if lines > FUNCTION_LINES_MAX:
                self.say(path, line, "function-size", f"{name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
        if not path.endswith("_test.cc") and path != "proto/bounded_parse.cc":
            for number, line in enumerate(code.split("\n"), 1):
                if PLAIN_PARSE.search(line):
                    self.say(path, number, "plain-parse", "protobuf reserves what bytes announce; use ParseBounded (proto/bounded_parse.h)")
        if path.startswith("tests/") or path.endswith(("_test.cc", "_fuzz.cc")):
            for number, line in enumerate(code.split("\n"), 1):
                if SLEEP.search(line):
                    self.say(path, number, "test-sleep", "tests wait for events or move a SimClock, they do not sleep")
        for number, style, target in includes(text):
            self.check_include(path, room, number, style, target)
        self.check_own_header(path, text)

    def check_own_header(self, path, text):
        """Then every build shows that the header compiles alone (cistern_headers of cmake/cistern.cmake relies on it)."""
        header = path.removesuffix(".cc") + ".h"
        if path.endswith(".cc") and header in self.texts:
            number, _, target = next(iter(includes(text)), (1, "", ""))
            if target != header:
                self.say(path, number, "own-header", f"includes {header} before anything else")

    def check_include(self, path, room, number, style, target):
        if UCX.match(target) and not path.startswith(("transport/ucx/", "tests/")):
            self.say(path, number, "room", f"{target}: UCX lives in transport/ucx alone")
        installed = path.startswith("client/include/")
        if installed and (style == '"' and not target.startswith("cistern/") or style == "<" and "/" in target and not target.startswith("cistern/")):
            self.say(path, number, "installed-header", f"{target}: installed headers use the standard library and their own kind")
        if style != '"' or room not in ROOMS:
            return
        other = target.split("/")[0]
        if other == "cistern":  # Installed headers, by the name their users write.
            other = "client"
        if other not in ROOMS:
            if "/" not in target:
                self.say(path, number, "include-root", f"\"{target}\": includes are written from the root")
            return
        if other != room and other not in ROOMS[room] and (room, target) not in FILE_EXCEPTIONS:
            self.say(path, number, "room", f"{room} may not include {target}")

    def check_heavy_headers(self):
        """A header that another room includes, itself or through others, stays free of heavy libraries."""
        graph = {path: [t for _, s, t in includes(text) if s == '"' and t in self.texts] for path, text in self.texts.items() if path.endswith(CPP)}
        shared = {target for path, targets in graph.items() for target in targets if target.split("/")[0] != path.split("/")[0] and not path.startswith("tests/")}
        waiting = list(shared)
        while waiting:
            for target in graph.get(waiting.pop(), []):
                if target not in shared:
                    shared.add(target)
                    waiting.append(target)
        for path in sorted(shared):
            for number, _, target in includes(self.texts[path]):
                if HEAVY.match(target):
                    self.say(path, number, "heavy-header", f"{target} in a header that other rooms include")

    def check_python(self, path, text):
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            self.say(path, error.lineno or 1, "python", f"does not parse: {error.msg}")
            return
        shipped = not path.startswith("tests/") and not path.endswith("_test.py")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    self.say(path, node.lineno, "function-size", f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
            if shipped and unsafe(node):
                self.say(path, node.lineno, "S03", f"{unsafe(node)}: nothing is ever unpickled or executed")

    def check_wire_numbers(self, record=False):
        file = self.root / "tests/lint/wire_numbers.json"
        recorded = json.loads(file.read_text()) if file.exists() else {}
        sources = [(path, wire_numbers.proto_numbers(text)) for path, text in self.texts.items() if path.endswith(".proto")]
        sources += [(path, wire_numbers.cpp_enum_numbers(self.texts[path], names)) for path, names in wire_numbers.CPP_ENUMS.items() if path in self.texts]
        merged = {}
        for path, (fields, reserved, complaints) in sources:
            for what in complaints + ([] if record else wire_numbers.compare(recorded.get(path, {}), fields, reserved)):
                self.say(path, 1, "F61", what)
            merged[path] = wire_numbers.merge(recorded.get(path, {}), fields)
        for path in set(recorded) - {path for path, _ in sources}:
            self.say(path, 1, "F61", "file with recorded wire numbers is gone")
        if record:
            file.write_text(json.dumps({**recorded, **merged}, indent=1, sort_keys=True) + "\n")


def includes(text):
    """[(line, '"' or '<', target)] of a C++ file."""
    return [(text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2))
            for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', text, re.MULTILINE)]


def unsafe(node):
    """What in this piece of Python could run bytes as code, or None."""
    if isinstance(node, ast.Import):
        return next((a.name for a in node.names if a.name.split(".")[0] in UNSAFE_MODULES), None)
    if isinstance(node, ast.ImportFrom):
        names = {(node.module, a.name) for a in node.names}
        return node.module if (node.module or "").split(".")[0] in UNSAFE_MODULES or names & UNSAFE_METHODS else None
    if isinstance(node, ast.Call):
        func = node.func
        if isinstance(func, ast.Name) and func.id in UNSAFE_CALLS:
            return func.id
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and (func.value.id, func.attr) in UNSAFE_METHODS:
            return f"{func.value.id}.{func.attr}"
        if any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
            return "allow_pickle"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--record", action="store_true", help="add new wire numbers to the record")
    parser.add_argument("--list", choices=["cpp"], help="print files instead")
    options = parser.parse_args()
    lint = Lint(options.root)
    if options.list:
        print("\n".join(path for path in lint.texts if path.endswith(CPP)))
        return 0
    if options.record:
        lint.check_wire_numbers(record=True)
    else:
        lint.run()
    print("\n".join(lint.complaints + [f"{len(lint.complaints)} complaints in {len(lint.texts)} files"]))
    return 1 if lint.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
