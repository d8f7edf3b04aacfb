#!/usr/bin/env python3
"""Layout ids made without the C++: the canonical encoding (core/layout/encoding.h) of the two sample layouts, and its digest.

layout_id.py [DENSE HYBRID]: prints the ids, or exits 1 when they are not those given."""
import hashlib
import struct
import sys


def field(tag, value):
    if isinstance(value, int):
        value = struct.pack("<I", value)
    elif isinstance(value, list):
        value = b"".join(struct.pack("<I", v) for v in value)
    elif isinstance(value, str):
        value = value.encode()
    return struct.pack("<BI", tag, len(value)) + value


def plane(name, dtype, heads, elements, shard, rule="", group=0, pad=0, joined=0):
    values = [(9, name), (22, dtype), (23, heads), (24, elements), (25, shard), (26, 1), (27, ""), (28, rule), (29, group), (30, pad), (31, joined)]
    return b"".join(field(*v) for v in values)


def segment(name, layers, tokens_per_row, row_tile, planes):
    head = b"".join(field(*v) for v in [(9, name), (18, layers), (19, tokens_per_row), (20, row_tile)])
    return head + b"".join(field(21, p) for p in planes)


def group(name, family, segments, window=0, slices=1, span_ends=()):
    values = [(9, name), (10, family), (11, window), (12, 1), (13, 0), (14, slices), (15, 0), (16, list(span_ends))]
    return b"".join(field(*v) for v in values) + b"".join(field(17, s) for s in segments)


def layout(groups, block=16):
    values = [(1, "cistern/layout/2"), (2, block), (3, block), (4, block), (5, 0), (6, 0), (7, [])]
    return b"".join(field(*v) for v in values) + b"".join(field(8, g) for g in groups)


HEAD, NONE = 2, 1
dense = layout([group("full", 1, [segment("kv", [0, 1, 2, 3], 1, 1, [plane("k", "bf16", 8, 64, HEAD), plane("v", "bf16", 8, 64, HEAD)])], slices=4)])
kv = [plane("k", "bf16", 2, 8, HEAD), plane("v", "bf16", 2, 8, HEAD)]
index = [plane("index_key", "e4m3", 1, 128, NONE, "fp32_128", 128), plane("index_scale", "fp32", 1, 1, NONE)]
hybrid = layout([
    group("full", 1, [segment("kv", [1, 3], 1, 1, kv), segment("index", [3], 4, 64, index)], span_ends=[2, 4]),
    group("window", 2, [segment("", [0], 1, 1, kv)], window=5, slices=2),
    group("state", 3, [segment("recurrent", [2], 0, 1, [plane("s", "fp32", 4, 64, HEAD)]), segment("conv", [2], 0, 1, [plane("q", "bf16", 2, 24, HEAD)])],
          slices=2),
    group("ring", 4, []),
])
ids = [hashlib.sha256(encoding).hexdigest()[:32] for encoding in (dense, hybrid)]
print("dense {}\nhybrid {}".format(*ids))
sys.exit(0 if sys.argv[1:] in ([], ids) else 1)
