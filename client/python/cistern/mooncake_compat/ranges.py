"""get_into_ranges: pieces of several values into several buffers."""
from __future__ import annotations

from typing import Any, Sequence

from .values import BufferHandle, ErrorCode, memory_at

INVALID = int(ErrorCode.INVALID_PARAMS)
MISSING = int(ErrorCode.OBJECT_NOT_FOUND)


class RangeForms:
    _objects: Any
    _buffers: dict[int, int]

    def get_into_ranges(self, buffer_ptrs: Sequence[int], all_keys: Sequence[Sequence[str]], all_dst_offsets: Sequence[Sequence[Sequence[int]]],
                        all_src_offsets: Sequence[Sequence[Sequence[int]]],
                        all_sizes: Sequence[Sequence[Sequence[int]]]) -> list[list[list[int]]]:
        """Bytes of each range, or a code. Buffers are registered ones; a value is read whole, once."""
        by_buffer = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        if self._objects is None or any(len(part) != len(buffer_ptrs) for part in by_buffer):
            return [[[INVALID] * len(offsets) for offsets in by_key] for by_key in all_dst_offsets]
        names = list(dict.fromkeys(key for keys in all_keys for key in keys))
        values = dict(zip(names, self._take(names)))
        return [self._ranges_of(pointer, values, *parts) for pointer, *parts in zip(buffer_ptrs, *by_buffer)]

    def _ranges_of(self, pointer: int, values: dict[str, BufferHandle | None], keys: Any, dst: Any, src: Any, sizes: Any) -> list[list[int]]:
        if not len(keys) == len(dst) == len(src) == len(sizes):
            return [[INVALID] * len(offsets) for offsets in dst]
        room = self._buffers.get(pointer, 0)
        target = memory_at(pointer, room) if room else memoryview(b"")
        out = []
        for key, to, at, counts in zip(keys, dst, src, sizes):
            if not len(to) == len(at) == len(counts):
                out.append([INVALID] * len(to))
                continue
            out.append([_copy(target, values[key], *one) for one in zip(to, at, counts)])
        return out


def _copy(target: memoryview, value: BufferHandle | None, to: int, at: int, count: int) -> int:
    if value is None:
        return MISSING
    if min(to, at, count) < 0 or to + count > len(target) or at + count > len(value):
        return INVALID
    target[to:to + count] = memoryview(value)[at:at + count]
    return count
