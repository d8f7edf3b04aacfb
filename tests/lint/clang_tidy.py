#!/usr/bin/env python3
"""Runs clang-tidy over the rooms' own sources, a few at a time, and remembers what passed: a file is looked at again only when
it, a header of ours that it includes, its compile command or .clang-tidy changed. Exits 1 when any file has a finding.

Most of the time goes into the headers of gRPC, Abseil and the standard library, again for each file; so files of one library are
looked at together, as one source that includes them. What fails together is looked at again in halves, down to single files: their
findings alone count, and two files whose local names collide cost time, not a finding."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOMS = ("core", "proto", "transport", "gpu", "kernels", "cache_node", "router", "client")
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


TOGETHER_MAX = 8  # Files in one run: more are hardly faster, and keep a core idle at the end.
# What a file declares for itself, roughly: types, constants and functions at the beginning of a line.
DECLARED = re.compile(rb"^(?:template.*> *)?(?:(?:class|struct|enum class|enum|using|namespace) +(\w+)"
                      rb"|(?:static |inline |thread_local |const)*constexpr [^=;({]*?(\w+)(?:\[[^\]]*\])? *[={]"
                      rb"|(?:\w[\w:<>,&* \[\]]*[ &*>])(\w+)(?:\(|;| =|\{))", re.MULTILINE)


class Headers:
    """Digest of a source file and all headers of the tree that it includes, directly or not."""

    def __init__(self, roots):
        self.roots = roots
        self.texts = {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = path.read_bytes()
        return self.texts[path]

    def digest(self, source):
        seen, waiting = set(), [source]
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            for target in INCLUDE.findall(self.text(path)):
                waiting += [root / target.decode() for root in self.roots if (root / target.decode()).is_file()][:1]
        sha = hashlib.sha256()
        for path in sorted(seen):
            sha.update(str(path).encode() + b"\0" + self.text(path) + b"\0")
        return sha.hexdigest()


def sources(root, build, wanted):
    """[(path, compile command)] of the rooms' sources that are no tests, without what the build made."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not path.is_relative_to(root) or path.is_relative_to(build):
            continue
        name = path.relative_to(root).as_posix()
        own = name.split("/")[0] in ROOMS and not name.endswith(("_test.cc", "_bench.cc", "_fuzz.cc"))
        if own and re.search(wanted, name):
            found[path] = entry.get("command", "")
    return sorted(found.items())


def flags_of(command):
    """What clang-tidy takes after `--` of a compile command: not compiler, input and output, GCC's precompiled headers and its warnings."""
    words, flags = iter(shlex.split(command)), []
    for word in words:
        if word in ("-o", "-c", "-include"):
            next(words)
        elif word.startswith("-") and not word.startswith("-W"):
            flags.append(word)
            if word in ("-isystem", "-I"):
                flags.append(next(words))
    return tuple(flags)


def group(todo):
    """Lists of [(path, key, flags)] that can be looked at together: one folder, one set of flags, no name declared twice."""
    groups = []
    for item in todo:
        path, _, flags = item
        names = {next(filter(None, found)) for found in DECLARED.findall(path.read_bytes())} - {b"cistern"}
        for members, taken in groups:
            alike = members[0][0].parent == path.parent and members[0][2] == flags
            if alike and len(members) < TOGETHER_MAX and not names & taken:
                members.append(item)
                taken |= names
                break
        else:
            groups.append(([item], names))
    return sorted((members for members, _ in groups), key=len, reverse=True)


class Tidy:
    def __init__(self, program, build, house_file):
        self.program = program
        self.build = build
        self.house_file = house_file
        rooms = re.search(r"^HeaderFilterRegex: '(.*)'$", house_file.read_text(), re.MULTILINE).group(1)
        self.filter = rooms.replace(r"\.h$", r"\.(h|cc)$")

    def run(self, paths, flags):
        """(exit status, output) of clang-tidy over files together."""
        if len(paths) == 1:
            command = [self.program, "--quiet", "--warnings-as-errors=*", str(paths[0]), "--", *flags]
        else:
            text = "".join(f'#include "{path}"  // NOLINT\n' for path in paths)
            folder = self.build / "clang_tidy"
            folder.mkdir(exist_ok=True)
            whole = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cc"
            whole.write_text(text)
            # Our checks, whatever folder the file lies in.
            command = [self.program, f"--config-file={self.house_file}", "--quiet", "--warnings-as-errors=*",
                       f"--header-filter={self.filter}", str(whole), "--", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def look(self, members):
        """[(path, key, exit status, output, seconds)], a line for each file."""
        begin = time.monotonic()
        code, output = self.run([path for path, _, _ in members], members[0][2])
        if code != 0 and len(members) > 1:
            half = len(members) // 2
            return self.look(members[:half]) + self.look(members[half:])
        share = (time.monotonic() - begin) / len(members)
        return [(path, key, code, output, share) for path, key, _ in members]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--clang-tidy", default="clang-tidy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="regular expression on the path from the root")
    options = parser.parse_args()
    root, build = options.root.resolve(), options.build.resolve()
    passed_file = build / "clang_tidy_passed.json"
    passed = json.loads(passed_file.read_text()) if passed_file.exists() else {}
    version = subprocess.run([options.clang_tidy, "--version"], capture_output=True, text=True, check=True).stdout
    house = version + (root / ".clang-tidy").read_text()
    headers = Headers([root, build, root / "client/include"])
    todo = []
    for path, command in sources(root, build, options.only):
        key = hashlib.sha256((house + command + headers.digest(path)).encode()).hexdigest()
        if passed.get(str(path)) != key:
            todo.append((path, key, flags_of(command)))

    tidy = Tidy(options.clang_tidy, build, root / ".clang-tidy")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for results in pool.map(tidy.look, group(todo)):
            for path, key, code, output, seconds in results:
                print(f"{'ok  ' if code == 0 else 'FAIL'} {seconds:5.1f} s  {path.relative_to(root)}", flush=True)
                if code == 0:
                    passed[str(path)] = key
                else:
                    failed += 1
                    print(output, flush=True)
            passed_file.write_text(json.dumps(passed, indent=0))
    print(f"{len(todo)} files looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
