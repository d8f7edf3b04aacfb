"""`python -m cistern bench`: the figures of `cistern bench`, measured through the module. The JSON has the same fields, but no limit;
cpu_s_per_gb counts this process alone, and `path` is the transport that was asked for."""
from __future__ import annotations

import argparse
import array
import json
import random
import resource
import statistics
import sys
import time
from typing import Any, Callable

from . import Chain, Client, Error, Layout, Unavailable

SLICES = 12
SLICE_SECONDS_MIN = 0.02
WARM_SECONDS_MAX = 5.0
MEMORY_BYTES = 256 << 20
DATA_BYTES = 512 << 20
STORE_BYTES_MAX = 32 << 20  # Of one call.

Step = Callable[[], "tuple[bool, int, int]"]  # (all right, bytes, items) of one op


class Refused(Exception):
    """One line for people."""


def size_of(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    number, shift = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 0)
    value = int(number) << shift
    if value <= 0:
        raise ValueError(text)
    return value


def make_chain(client: Client, layout: Layout, purpose: int, number: int, blocks: int) -> Chain:
    rng = random.Random(purpose << 32 | number)
    return client.chain(layout, array.array("I", rng.randbytes(4 * layout.block_tokens * blocks)))


class Memory:
    """Prefaulted memory, handed out in turn as pages: more of it than any processor's cache holds."""

    def __init__(self, client: Client, size: int, batch: int, window: bool):
        self._pages = max(MEMORY_BYTES // size, batch)
        memory: Any = client.allocate(self._pages * size) if window else None
        view = memoryview(memory if memory is not None else bytearray(self._pages * size))
        for at in range(0, len(view), 4096):
            view[at] = 1
        self._batches = [[view[i * size:(i + 1) * size] for i in range(first, first + batch)]
                         for first in range(0, self._pages - batch + 1, batch)]
        self._at = 0

    def __len__(self) -> int:
        return len(self._batches)

    def next(self) -> list[memoryview]:
        self._at = (self._at + 1) % len(self._batches)
        return self._batches[self._at]


def read_step(client: Client, o: argparse.Namespace) -> tuple[Step, int]:
    layout = Layout(model="bench", block_tokens=o.block_tokens, part_bytes=o.size, geometry="python bench")
    memory = Memory(client, o.size, o.batch, window=False)
    chains = [make_chain(client, layout, 1 + o.batch, i, o.batch) for i in range(max(1, DATA_BYTES // (o.size * o.batch)))]
    for chain in chains:
        per_call = max(1, STORE_BYTES_MAX // o.size)
        pages = memory.next()
        for first in range(0, o.batch, per_call):
            client.store(chain, pages[first:first + per_call], first=first, deadline_ms=10000)
    there = [chain for chain in chains if client.lookup(chain) == o.batch]
    if not there:
        raise Refused(f"the nodes keep none of the {len(chains)} prefixes; give them more --ram, or a smaller --size or --batch")
    rng, warm = random.Random(7), iter(there)

    def step() -> tuple[bool, int, int]:
        report = client.fetch(next(warm, None) or rng.choice(there), memory.next())
        return report.ok_pages == o.batch, o.size * o.batch, o.batch

    return step, max(len(there), len(memory)) + 1


def write_step(client: Client, o: argparse.Namespace) -> tuple[Step, int]:
    layout = Layout(model="bench", block_tokens=o.block_tokens, part_bytes=o.size, geometry="python bench write")
    memory = Memory(client, o.size, o.batch, window=True)
    purpose, numbers = time.time_ns(), iter(range(1 << 62))

    def step() -> tuple[bool, int, int]:
        report = client.store(make_chain(client, layout, purpose, next(numbers), o.batch), memory.next())
        return report.ok_pages == o.batch, o.size * o.batch, o.batch

    return step, len(memory) + 1


def lookup_step(client: Client, o: argparse.Namespace) -> tuple[Step, int]:
    layout = Layout(model="bench", block_tokens=o.block_tokens, part_bytes=4096, geometry="python bench lookup")
    chain = make_chain(client, layout, 3, 0, o.batch)
    page = bytes(4096)
    for first in range(0, o.batch, 1024):
        client.store(chain, [page] * min(1024, o.batch - first), first=first, deadline_ms=10000)
    return (lambda: (client.lookup(chain) == o.batch, 0, o.batch)), 1


def hash_step(client: Client, o: argparse.Namespace) -> tuple[Step, int]:
    layout = Layout(model="bench", block_tokens=o.block_tokens, part_bytes=4096)
    tokens = array.array("I", range(o.block_tokens * o.batch))
    return (lambda: (client.chain(layout, tokens).blocks == o.batch, 0, len(tokens))), 1


def run_slices(step: Step, warm: int, seconds: float) -> dict[str, Any]:
    begin = time.monotonic()
    while warm > 0 and time.monotonic() - begin < WARM_SECONDS_MAX:
        step()
        warm -= 1
    us: list[float] = []
    rates: list[tuple[float, float, float]] = []
    ops = failed = moved = 0
    cpu_begin = resource.getrusage(resource.RUSAGE_SELF)
    length = max(SLICE_SECONDS_MIN, seconds / SLICES)
    for _ in range(SLICES):
        good = nbytes = items = 0
        first = last = time.perf_counter()
        while last - first < length:
            right, step_bytes, step_items = step()
            now = time.perf_counter()
            us.append((now - last) * 1e6)
            last = now
            ops += 1
            if not right:
                failed += 1
                continue
            good, nbytes, items = good + 1, nbytes + step_bytes, items + step_items
        moved += nbytes
        rates.append((nbytes / (last - first) / 1e9, good / (last - first), items / (last - first)))
    cpu_end = resource.getrusage(resource.RUSAGE_SELF)
    cpu = cpu_end.ru_utime + cpu_end.ru_stime - cpu_begin.ru_utime - cpu_begin.ru_stime
    gbps, ops_per_s, items_per_s = (round(statistics.median(column), 4) for column in zip(*rates))
    us.sort()
    return {"gbps": gbps, "ops_per_s": ops_per_s, "items_per_s": items_per_s,
            "us": {"p50": round(us[len(us) // 2], 2), "p99": round(us[min(len(us) - 1, len(us) * 99 // 100)], 2)},
            "cpu_s_per_gb": round(cpu / (moved / 1e9), 4) if moved else 0, "ops": ops, "failed_ops": failed}


STEPS = {"read": read_step, "write": write_step, "lookup": lookup_step, "hash": hash_step}


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cistern", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench")
    bench.add_argument("op", choices=sorted(STEPS))
    bench.add_argument("--size", type=size_of, default=64 << 10, help="bytes of a part; 64K")
    bench.add_argument("--batch", type=int, help="parts an op, 16; blocks of the prefix for lookup and hash, 4096")
    bench.add_argument("--block-tokens", type=int, default=16)
    bench.add_argument("--transport", choices=["auto", "map", "socket"], default="auto")
    bench.add_argument("--router", help="HOST:PORT; CISTERN_ROUTER, then 127.0.0.1:7400")
    bench.add_argument("--seconds", type=float, default=2.0)
    bench.add_argument("--no-spin", action="store_true", help="sleep while waiting, as an engine does")
    bench.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    options.batch = options.batch or (4096 if options.op in ("lookup", "hash") else 16)
    if options.batch < 1 or options.seconds <= 0:
        parser.error("--batch and --seconds must be above 0")
    return options


def main(words: list[str]) -> int:
    o = parse(words)
    try:
        window = MEMORY_BYTES + (32 << 20) if o.op == "write" else 64 << 20
        with Client(o.router, transport=o.transport, spin=not o.no_spin, wait_for_router=False, window_bytes=window) as client:
            step, warm = STEPS[o.op](client, o)
            figures = run_slices(step, warm, o.seconds)
    except (Error, Refused) as error:
        hint = "; is a cluster up? see 'cistern up --help'" if isinstance(error, Unavailable) else ""
        print(f"{error}{hint}", file=sys.stderr)
        return 2
    out = {"op": o.op, "size": o.size, "batch": o.batch, "block_tokens": o.block_tokens, "path": o.transport, **figures}
    print(json.dumps(out) if o.json else "\n".join(f"{name:14} {value}" for name, value in out.items()))
    return 1 if out["failed_ops"] else 0
