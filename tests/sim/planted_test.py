#!/usr/bin/env python3
"""planted_test.py BUILD [NAME ...]: would the simulator notice? Puts one bug at a time into a copy of one source file, links it in place of
the right one, and runs seeds until one fails. A bug that 200 seeds do not find fails this test: the simulator has gone blind to it."""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = 200

# name: file, the right text, the wrong one.
BUGS = {
    # Found by readers whose clock is slow, so that they trust leases that have ended: what they see must be called stale, not damage.
    "skip-the-generation-check": (
        "client/core/verify.cc",
        "if (trailer.generation != descriptor.generation) return PartResult::kStale;",
        ""),
    "skip-the-crc": (
        "client/core/verify.cc",
        "return pulled.crc == descriptor.crc ? PartResult::kOk : PartResult::kCorrupt;",
        "return PartResult::kOk;"),
    "reuse-a-slot-under-lease": (
        "cache_node/ram_tier.cc",
        "  if (record.leases == 0) {\n    slab.tick_sum",
        "  {\n    slab.tick_sum"),
    "ignore-a-failed-stage": (
        "cache_node/node_shard_write.cc",
        "  if (announced_crc != arrived_crc) {",
        "  if (announced_crc != arrived_crc && arrived_crc == 0x5eed) {"),
    "forget-the-fence": (
        "client/core/core_requests.cc",
        "const bool must_fence = up && ((request.pull && !pull_ended) || request.unsent_payload);",
        "const bool must_fence = false;"),
}


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["directory"], entry["file"]).resolve() == source:
            return shlex.split(entry["command"]), entry["directory"]
    raise SystemExit(f"planted: {source} is not built in {build}")


def plant(build, folder, name):
    """A cistern-sim with that bug."""
    file, right, wrong = BUGS[name]
    source = ROOT / file
    text = source.read_text()
    if text.count(right) != 1:
        raise SystemExit(f"planted: {name}: {file} has changed; tell this script what the right text is now")
    planted = folder / f"{name}.cc"
    planted.write_text(text.replace(right, wrong))
    command, directory = compile_command(build, source)
    target = folder / f"{name}.o"
    command[command.index("-c") + 1] = str(planted)
    command[command.index("-o") + 1] = str(target)
    command += ["-w"]  # What is not used any more is the point.
    subprocess.run(command, cwd=directory, check=True)
    ninja = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "-s", "bin/cistern-sim"], check=True, capture_output=True, text=True).stdout
    link = next(line for line in ninja.splitlines() if "-o bin/cistern-sim" in line)
    parts = [part for part in shlex.split(link) if part not in (":", "&&")]
    at = parts.index("-o")
    binary = folder / name
    parts[at + 1] = str(binary)
    parts.insert(at, str(target))  # Before the libraries: the right one is then not taken out of them.
    subprocess.run(parts, cwd=build, check=True)
    return binary


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in sys.argv[2:] or BUGS:
            binary = plant(build, pathlib.Path(temporary), name)
            done = subprocess.run([str(binary), "--seeds", str(SEEDS)], capture_output=True, text=True, check=False)
            found = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "smaller"))]
            dead = done.returncode not in (0, 1)  # A check of our own that ends the process has noticed as well.
            print(f"{name}: " + ("; ".join(found) if found else f"ended with {done.returncode}: {done.stderr.strip()[-160:]}" if dead else "NOT FOUND"),
                  flush=True)
            if not found and not dead:
                missed.append(name)
    if missed:
        print(f"planted: {SEEDS} seeds did not find {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
