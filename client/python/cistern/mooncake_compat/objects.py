"""Values under string keys that can be replaced and removed, kept in blocks that never change.

A key's *head* is one small block named by the key: size and a random id. The value lies in blocks named by key and id, so that bytes
of another value are never taken for this one's, whatever was removed, replaced or brought back meanwhile. The first head wins; a head
whose value is gone counts as no value.
"""
from __future__ import annotations

import dataclasses
import hashlib
import os
import struct
from typing import Any, Callable, Sequence

from .._cistern import Chain, Layout, Report
from .._client import Client
from .._driver import Batch, Driver
from .._errors import Error, PageResult
from ..keyed import BATCH_KEYS_MAX, KEY_TOKENS, PART_BYTES_MAX, worst

VALUE_BYTES_MAX = 1 << 30
ATTEMPTS_MAX = 3  # Of a call that others' puts and removals get between.
BYTES_PER_DEADLINE_MS = 50_000  # Long values have longer: 50 MB/s at worst.
_HEAD = struct.Struct("<4sIQ16s")
_MAGIC = b"CMK1"
_STORED = (PageResult.OK, PageResult.EXISTS)


@dataclasses.dataclass(frozen=True)
class Head:
    size: int
    value_id: bytes

    def packed(self) -> bytes:
        return _HEAD.pack(_MAGIC, 0, self.size, self.value_id)

    @classmethod
    def unpack(cls, page: Any) -> Head | None:
        magic, flags, size, value_id = _HEAD.unpack(page)
        return cls(size, value_id) if (magic, flags) == (_MAGIC, 0) and size <= VALUE_BYTES_MAX else None


def part_bytes_of(size: int) -> tuple[int, int]:
    """(blocks, bytes of each): padded by at most 1/16, so that values of all sizes make some hundred layouts and not millions."""
    blocks = max(1, -(-size // PART_BYTES_MAX))
    if blocks > 16:
        return blocks, PART_BYTES_MAX
    each = -(-size // blocks)
    grain = max(64, 1 << max(0, each.bit_length() - 5))
    return blocks, min(-(-each // grain) * grain, PART_BYTES_MAX)


def cut(pieces: Sequence[memoryview], part_bytes: int, blocks: int, fill: Callable[[int], Any]) -> list[list[Any]]:
    """Memory as pages of `part_bytes`, the last filled up with what nobody reads."""
    pages: list[list[Any]] = []
    page: list[Any] = []
    room = part_bytes
    for piece in pieces:
        at = 0
        while at < len(piece):
            step = min(room, len(piece) - at)
            page.append(piece[at:at + step])
            at, room = at + step, room - step
            if room == 0:
                pages.append(page)
                page, room = [], part_bytes
    if page:
        pages.append(page + [fill(room)])
    return pages + [[fill(part_bytes)] for _ in range(blocks - len(pages))]


class ObjectStore:
    """Any thread. Whatever fails is a result of its key; a cluster that is not there is PEER_GONE or DEADLINE."""

    def __init__(self, client: Client, space: str, *, deadline_ms: int):
        self.client, self._space, self._deadline_ms = client, space, deadline_ms
        self._driver = Driver(client)
        self._head_layout = Layout(model="mooncake", block_tokens=KEY_TOKENS, part_bytes=_HEAD.size, geometry=f"head/1;{space}")
        self._layouts: dict[int, Layout] = {}

    def close(self) -> None:
        self._driver.close()

    # ------------------------------------------------ calls, by batches
    def heads(self, keys: Sequence[str]) -> list[tuple[PageResult, Head | None]]:
        pages = [bytearray(_HEAD.size) for _ in keys]
        results = self._fetch([(self._head(key), [page]) for key, page in zip(keys, pages)], _HEAD.size)
        out: list[tuple[PageResult, Head | None]] = []
        for result, page in zip(results, pages):
            head = Head.unpack(page) if result == PageResult.OK else None
            out.append((PageResult.CORRUPT if result == PageResult.OK and head is None else result, head))
        return out

    def exists(self, keys: Sequence[str]) -> list[PageResult]:
        """OK only where all of the value is there."""
        found = self.heads(keys)
        results = [result for result, _ in found]
        asked = [i for i, (_, head) in enumerate(found) if head is not None and head.size]
        chains = [self._value(keys[i], found[i][1]) for i in asked]
        for i, whole in zip(asked, self._lookup(chains)):
            results[i] = PageResult.OK if whole else PageResult.MISS
        return results

    def get(self, keys: Sequence[str], memory_of: Callable[[int, int], list[memoryview] | None]) -> list[tuple[PageResult, int]]:
        """(result, size) of each key. memory_of(index, size) gives where the value goes; None: nowhere, the result is INVALID then."""
        out: list[tuple[PageResult, int]] = [(PageResult.MISS, 0)] * len(keys)
        left = list(range(len(keys)))
        for _ in range(ATTEMPTS_MAX):
            again, moves, where, most = [], [], [], 0
            for i, (result, head) in zip(left, self.heads([keys[i] for i in left])):
                out[i] = (result, 0 if head is None else head.size)
                if head is None:
                    continue
                pieces = memory_of(i, head.size)
                if pieces is None or sum(map(len, pieces)) < head.size:
                    out[i] = (PageResult.INVALID, head.size)
                elif head.size:
                    blocks, each = part_bytes_of(head.size)
                    moves.append((self._value(keys[i], head), cut(_first(pieces, head.size), each, blocks, bytearray)))
                    where.append(i)
                    most = max(most, head.size)
            for i, result in zip(where, self._fetch(moves, most)):
                out[i] = (result, out[i][1])
                if result == PageResult.MISS:
                    again.append(i)  # Evicted, or replaced since its head was read.
            left = again
            if not left:
                break
        return out

    def put(self, keys: Sequence[str], values: Sequence[list[memoryview]], *, replace: bool = False) -> list[PageResult]:
        """The first copy of a key stays, unless `replace`. EXISTS: it was there."""
        results: list[PageResult] = [PageResult.BUSY] * len(keys)
        left, first = [], {key: i for i, key in reversed(list(enumerate(keys)))}
        for i, value in enumerate(values):
            if sum(map(len, value)) > VALUE_BYTES_MAX:
                results[i] = PageResult.TOO_LARGE
            elif first[keys[i]] == i:
                left.append(i)
        for _ in range(ATTEMPTS_MAX):
            left = self._put(left, keys, values, replace, results)
            if not left:
                break
        for i, key in enumerate(keys):  # The same key twice in one batch: one value.
            if first[key] != i and results[i] != PageResult.TOO_LARGE:
                results[i] = PageResult.EXISTS if results[first[key]] in _STORED else results[first[key]]
        return results

    def remove(self, keys: Sequence[str]) -> list[PageResult]:
        """OK: it was there, and no node of the map has it any more."""
        found = self.heads(keys)
        there = [i for i, (result, head) in enumerate(found) if head is not None or result == PageResult.CORRUPT]
        gone = self._remove([chain for i in there for chain in self._all(keys[i], found[i][1])])
        return [(PageResult.OK if gone else PageResult.PEER_GONE) if i in there else found[i][0] for i in range(len(keys))]

    # ------------------------------------------------ inside
    def _put(self, left: list[int], keys: Sequence[str], values: Sequence[list[memoryview]], replace: bool,
             results: list[PageResult]) -> list[int]:
        """One attempt; gives those that others got between."""
        old = dict(zip(left, self.heads([keys[i] for i in left])))
        if not replace:
            whole = dict(zip(left, self._whole([keys[i] for i in left], [old[i][1] for i in left])))
            for i in left:
                if whole[i]:
                    results[i] = PageResult.EXISTS
            left = [i for i in left if not whole[i]]
        heads = {i: Head(sum(map(len, values[i])), os.urandom(16)) for i in left}
        stored = self._store_values(left, keys, values, heads)
        good = []
        for i, result in zip(left, stored):
            results[i] = result
            if result in _STORED:
                good.append(i)
        # Heads of before go first: a key without a value is a miss, one with two would be a choice.
        before = [i for i in good if old[i][1] is not None or old[i][0] == PageResult.CORRUPT]
        if before and not self._remove([self._head(keys[i]) for i in before]):
            for i in before:
                results[i] = PageResult.PEER_GONE
            good = [i for i in good if i not in before]
        done = self._store([(self._head(keys[i]), [[heads[i].packed()]]) for i in good], _HEAD.size)
        again, waste = [], []
        for i, result in zip(good, done):
            results[i] = result
            if result == PageResult.OK:
                waste += [self._value(keys[i], old[i][1])] if old[i][1] is not None and old[i][1].size else []
                continue
            waste += [self._value(keys[i], heads[i])] if heads[i].size else []
            if result == PageResult.EXISTS:
                again.append(i)  # Another put came between: see whether its value is whole.
        if waste:
            self._remove(waste)  # Only memory; what stays is evicted some day.
        return again

    def _store_values(self, left: list[int], keys: Sequence[str], values: Sequence[list[memoryview]],
                      heads: dict[int, Head]) -> list[PageResult]:
        moves, where, most = [], [], 0
        for i in left:
            size = heads[i].size
            if size:
                blocks, each = part_bytes_of(size)
                moves.append((self._value(keys[i], heads[i]), cut(values[i], each, blocks, bytes)))
                where.append(i)
                most = max(most, size)
        stored = dict(zip(where, self._store(moves, most)))
        return [stored.get(i, PageResult.OK) for i in left]

    def _whole(self, keys: Sequence[str], heads: Sequence[Head | None]) -> list[bool]:
        chains = [self._value(key, head) for key, head in zip(keys, heads) if head is not None and head.size]
        found = iter(self._lookup(chains))
        return [head is not None and (not head.size or next(found)) for head in heads]

    def _all(self, key: str, head: Head | None) -> list[Chain]:
        return [self._head(key)] + ([self._value(key, head)] if head is not None and head.size else [])

    def _remove(self, chains: list[Chain]) -> bool:
        if not self._driver.usable():
            return False
        try:
            self.client.remove(chains, deadline_ms=self._deadline_ms)
        except Error:
            return False
        return True

    def _head(self, key: str) -> Chain:
        if not isinstance(key, str):
            raise TypeError(f"a key is a str, not {type(key).__name__}")
        return self._chain(self._head_layout, hashlib.sha256(key.encode()).digest(), 1)

    def _value(self, key: str, head: Head) -> Chain:
        blocks, each = part_bytes_of(head.size)
        layout = self._layouts.get(each)
        if layout is None:
            layout = self._layouts[each] = Layout(model="mooncake", block_tokens=KEY_TOKENS, part_bytes=each, geometry=f"value/1;{self._space}")
        return self._chain(layout, hashlib.sha256(head.value_id + head.size.to_bytes(8, "little") + key.encode()).digest(), blocks)

    def _chain(self, layout: Layout, name: bytes, blocks: int) -> Chain:
        return self.client.chain(layout, list(memoryview(name).cast("I")) + [i for i in range(1, blocks) for _ in range(KEY_TOKENS)])

    def _fetch(self, moves: list[tuple[Chain, list[Any]]], most: int) -> list[PageResult]:
        return self._move(moves, most, self.client.fetch, self.client.submit_fetch)

    def _store(self, moves: list[tuple[Chain, list[Any]]], most: int) -> list[PageResult]:
        return self._move(moves, most, self.client.store, self.client.submit_store)

    def _move(self, moves: list[tuple[Chain, list[Any]]], most: int, wait: Any, submit: Any) -> list[PageResult]:
        deadline_ms = self._deadline_ms + most // BYTES_PER_DEADLINE_MS
        if not self._driver.usable():
            return [PageResult.PEER_GONE] * len(moves)
        if len(moves) == 1:  # Who waits drives: no thread in between.
            try:
                return [worst(wait(*moves[0], deadline_ms=deadline_ms))]
            except Error as error:
                return [_result_of(error)]

        def start(batch: Batch, index: int, i: int) -> None:
            batch.call(self.client, index, PageResult.INVALID, submit, *moves[i], deadline_ms=deadline_ms,
                       then=lambda report, error: batch.end(index, worst(report) if error is None else _result_of(error)))
        return self._all_of(len(moves), start, deadline_ms, PageResult.PEER_GONE)

    def _lookup(self, chains: list[Chain]) -> list[bool]:
        def start(batch: Batch, index: int, i: int) -> None:
            batch.call(self.client, index, False, self.client.submit_lookup, chains[i], deadline_ms=self._deadline_ms,
                       then=lambda blocks, error: batch.end(index, error is None and blocks == len(chains[i])))
        return self._all_of(len(chains), start, self._deadline_ms, False)

    def _all_of(self, count: int, start: Callable[[Batch, int, int], None], deadline_ms: int, otherwise: Any) -> list[Any]:
        """start(batch, index in it, index of all) begins one call."""
        out: list[Any] = []
        for at in range(0, count, BATCH_KEYS_MAX):
            batch = Batch(min(BATCH_KEYS_MAX, count - at))

            def begin(at: int = at, batch: Batch = batch) -> None:
                ready = self._driver.usable()
                for i in range(len(batch.results)):
                    if ready:
                        start(batch, i, at + i)
                    else:
                        batch.end(i, otherwise)
            out += self._driver.run(batch, begin, deadline_ms / 1000, otherwise)
        return out


def _first(pieces: list[memoryview], size: int) -> list[memoryview]:
    out = []
    for piece in pieces:
        out.append(piece[:size])
        size -= len(out[-1])
    return out


def _result_of(error: Error) -> PageResult:
    from .._errors import Code

    by_code = {Code.INVALID_ARGUMENT: PageResult.INVALID, Code.RESOURCE_EXHAUSTED: PageResult.BUSY, Code.DEADLINE_EXCEEDED: PageResult.DEADLINE}
    return by_code.get(error.code, PageResult.PEER_GONE)
