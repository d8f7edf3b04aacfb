#!/usr/bin/env python3
"""Runs clang-tidy over the rooms' own sources, a few at a time, and remembers what passed: a file is looked at again only when
it, a header of ours that it includes, its compile command or .clang-tidy changed. Exits 1 when any file has a finding."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOMS = ("core", "proto", "transport", "gpu", "kernels", "cache_node", "router", "client")
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


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
            todo.append((path, key))

    def check(path):
        begin = time.monotonic()
        command = [options.clang_tidy, "-p", str(build), "--quiet", "--warnings-as-errors=*", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, time.monotonic() - begin

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (path, key), (code, output, seconds) in zip(todo, pool.map(check, [path for path, _ in todo])):
            print(f"{'ok  ' if code == 0 else 'FAIL'} {seconds:5.1f} s  {path.relative_to(root)}", flush=True)
            if code == 0:
                passed[str(path)] = key
                passed_file.write_text(json.dumps(passed, indent=0))
            else:
                failed += 1
                print(output, flush=True)
    print(f"{len(todo)} files looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
