"""Values under opaque keys, for engines that name their pages themselves (LMCache, SGLang): get, put and exists in batches.

A key is a string; its value never changes: what is put again under it is the same by the caller's word, and the first copy stays.
Values of any size up to VALUE_BYTES_MAX live in a space of their own, apart from every other space and from token chains. Nothing is
deleted: values that are not used go when room is needed.
"""
from __future__ import annotations

import hashlib
import logging
from typing import Any, Callable, Sequence, Tuple

from ._cistern import Chain, Layout, Report
from ._client import Client
from ._driver import REFUSED, Batch, Driver
from ._errors import Code, Error, InvalidArgument, PageResult

log = logging.getLogger("cistern")
PART_BYTES_MAX = 4 << 20
VALUE_BYTES_MAX = 64 * PART_BYTES_MAX
SIZE_BYTES = 8
BATCH_KEYS_MAX = 1024  # Calls outstanding of one batch; bigger batches go in pieces.
CALLS_OF_A_RESULT_MAX = 2  # A put stores the value, then its size.
KEY_TOKENS = 8  # SHA-256 as token ids.


def size_page(size: int) -> bytes:
    return size.to_bytes(SIZE_BYTES, "little")

_Start = Callable[[Batch, int, int], None]  # Of a result: its batch, its place there and in the whole.
_Absent = Tuple[Any, Any]  # The results where no call can be made, and where this one is wrong.


class KeyedStore:
    """`space` separates keys of different users, models or formats. Any thread. A cache that is not there is a miss."""

    def __init__(self, client: Client, space: str, *, deadline_ms: int = 2000):
        self.client, self._space, self._deadline_ms = client, space, deadline_ms
        self._driver = Driver(client)
        self._sizes = Layout(model="keyed", block_tokens=KEY_TOKENS, part_bytes=SIZE_BYTES, geometry=f"keyed size;{space}")
        self._layouts: dict[int, Layout] = {}

    def close(self) -> None:
        self._driver.close()

    # ------------------------------------------------ batches that call back, on the driver's thread
    def submit_get(self, keys: Sequence[str], buffers: Sequence[Any], done: Callable[[list[PageResult]], None]) -> None:
        """Each buffer takes the value of its key; a value of another size is a miss. What is wrong with a key or a buffer is a result too."""
        self._submit(*self._getting(keys, buffers), done)

    def submit_put(self, keys: Sequence[str], values: Sequence[Any], done: Callable[[list[PageResult]], None]) -> None:
        """EXISTS and OK both mean that the value is there."""
        self._submit(*self._putting(keys, values), done)

    def submit_exists(self, keys: Sequence[str], done: Callable[[list[bool]], None], size: int | None = None) -> None:
        """Whether each key has a value; `size`, where it is known, looks at the value itself."""
        self._submit(*self._looking(keys, size), done)

    # ------------------------------------------------ the same, waiting
    def get(self, keys: Sequence[str], buffers: Sequence[Any]) -> list[PageResult]:
        return self._wait(*self._getting(keys, buffers))

    def put(self, keys: Sequence[str], values: Sequence[Any]) -> list[PageResult]:
        return self._wait(*self._putting(keys, values))

    def exists(self, keys: Sequence[str], size: int | None = None) -> list[bool]:
        return self._wait(*self._looking(keys, size))

    def size_of(self, key: str) -> int | None:
        page = bytearray(SIZE_BYTES)
        try:
            if not self._driver.usable():
                return None
            report = self.client.fetch(self._chain(self._sizes, key, 1), [page], deadline_ms=self._deadline_ms)
        except Error:
            return None
        return int.from_bytes(page, "little") if report else None

    # ------------------------------------------------ inside
    def _getting(self, keys: Sequence[str], buffers: Sequence[Any]) -> tuple[int, _Start, _Absent]:
        _same_length(keys, buffers)
        return len(keys), lambda batch, i, at: self._fetch(keys[at], buffers[at], batch, i), (PageResult.PEER_GONE, PageResult.INVALID)

    def _putting(self, keys: Sequence[str], values: Sequence[Any]) -> tuple[int, _Start, _Absent]:
        _same_length(keys, values)
        return len(keys), lambda batch, i, at: self._store(keys[at], values[at], batch, i), (PageResult.PEER_GONE, PageResult.INVALID)

    def _looking(self, keys: Sequence[str], size: int | None) -> tuple[int, _Start, _Absent]:
        if size is not None and size < 0:
            raise InvalidArgument(Code.INVALID_ARGUMENT, f"size: {size} is negative")
        return len(keys), lambda batch, i, at: self._look(keys[at], size, batch, i), (False, False)

    def _submit(self, count: int, start: _Start, absent: _Absent, done: Callable[[list[Any]], None]) -> None:
        batch = Batch(count, done)
        if not self._driver.ready():  # Nobody would end it.
            for i in range(count):
                batch.end(i, absent[0])
            return
        self._driver.add(batch)
        try:
            self._begin(batch, 0, start, absent)
        except BaseException:
            self._driver.let_go(batch)  # A signal's handler raised.
            raise

    def _wait(self, count: int, start: _Start, absent: _Absent) -> list[Any]:
        out: list[Any] = []
        for at in range(0, count, BATCH_KEYS_MAX):
            batch = Batch(min(BATCH_KEYS_MAX, count - at))
            out += self._driver.run(batch, lambda at=at, batch=batch: self._begin(batch, at, start, absent),
                                    CALLS_OF_A_RESULT_MAX * self._deadline_ms / 1000, absent[0])
        return out

    def _begin(self, batch: Batch, at: int, start: _Start, absent: _Absent) -> None:
        """Every result comes, whatever is wrong with one key or its memory."""
        ready = self._driver.usable()
        for i in range(len(batch.results)):
            if not ready:
                batch.end(i, absent[0])
                continue
            try:
                start(batch, i, at + i)
            except REFUSED as error:
                log.debug("cistern: key %d of a batch: %s", at + i, error)
                batch.end(i, absent[1])

    def _look(self, key: str, size: int | None, batch: Batch, index: int) -> None:
        if size is not None and size > VALUE_BYTES_MAX:
            batch.end(index, False)  # No value is that large.
            return
        if size == 0:
            self._take_size(key, batch, index, False, lambda found, stored: batch.end(index, found == PageResult.OK and stored == 0))
            return
        chain = self._value_chain(key, size) if size is not None else self._chain(self._sizes, key, 1)
        batch.call(self.client, index, False, self.client.submit_lookup, chain, deadline_ms=self._deadline_ms,
                   then=lambda blocks, error: batch.end(index, error is None and blocks == chain.blocks))

    def _chain(self, layout: Layout, key: str, blocks: int) -> Chain:
        if not isinstance(key, str):
            raise TypeError(f"a key is a str, not {type(key).__name__}")
        words = memoryview(hashlib.sha256(key.encode()).digest()).cast("I")
        return self.client.chain(layout, list(words) + [i for i in range(1, blocks) for _ in range(KEY_TOKENS)])

    def _value_chain(self, key: str, size: int) -> Chain:
        blocks = self._blocks(size)
        layout = self._layouts.get(size)
        if layout is None:
            layout = Layout(model="keyed", block_tokens=KEY_TOKENS, part_bytes=-(-size // blocks), geometry=f"keyed;{self._space};{size}")
            if len(self._layouts) < 256:  # Sizes vary little; those that do not are made anew.
                self._layouts[size] = layout
        return self._chain(layout, key, blocks)

    @staticmethod
    def _blocks(size: int) -> int:
        return max(1, -(-size // PART_BYTES_MAX))

    def _pages(self, memory: Any, writable: bool) -> tuple[list[Any], int]:
        """One page a block; the last is filled up with what nobody reads."""
        view = memoryview(memory).cast("B") if memoryview(memory).nbytes else memoryview(b"")
        size = view.nbytes
        blocks = self._blocks(size)
        step = -(-size // blocks)
        pages: list[Any] = [view[at * step:(at + 1) * step] for at in range(blocks)]
        rest = step * blocks - size
        if rest:
            pages[-1] = [pages[-1], bytearray(rest) if writable else bytes(rest)]
        return pages, size

    def _store(self, key: str, value: Any, batch: Batch, index: int) -> None:
        pages, size = self._pages(value, False)
        if size > VALUE_BYTES_MAX:
            batch.end(index, PageResult.TOO_LARGE)
            return
        if size == 0:
            self._store_size(key, 0, batch, index, PageResult.OK)
            return

        def stored(report: Report | None, error: Error | None) -> None:
            result = PageResult.BUSY if error is not None else worst(report)
            if result in (PageResult.OK, PageResult.EXISTS):
                self._store_size(key, size, batch, index, result)
            else:
                batch.end(index, result)
        batch.call(self.client, index, PageResult.INVALID, self.client.submit_store, self._value_chain(key, size), pages, then=stored,
                   deadline_ms=self._deadline_ms)

    def _store_size(self, key: str, size: int, batch: Batch, index: int, result: PageResult) -> None:
        """After the value: a key is there only when all of it is."""
        batch.call(self.client, index, PageResult.BUSY, self.client.submit_store, self._chain(self._sizes, key, 1), [size_page(size)],
                   then=lambda report, error: batch.end(
                       index, result if error is None and worst(report) in (PageResult.OK, PageResult.EXISTS) else PageResult.BUSY),
                   deadline_ms=self._deadline_ms)

    def _fetch(self, key: str, buffer: Any, batch: Batch, index: int) -> None:
        pages, size = self._pages(buffer, True)
        if size > VALUE_BYTES_MAX:
            batch.end(index, PageResult.MISS)
        elif size == 0:
            self._take_size(key, batch, index, PageResult.INVALID,
                            lambda found, stored: batch.end(index, PageResult.MISS if found == PageResult.OK and stored else found))
        else:
            batch.call(self.client, index, PageResult.INVALID, self.client.submit_fetch, self._value_chain(key, size), pages,
                       then=lambda report, error: batch.end(index, PageResult.DEADLINE if error is not None else worst(report)),
                       deadline_ms=self._deadline_ms)

    def _take_size(self, key: str, batch: Batch, index: int, otherwise: Any, then: Callable[[PageResult, int], None]) -> None:
        """An empty value is its size alone."""
        page = bytearray(SIZE_BYTES)
        batch.call(self.client, index, otherwise, self.client.submit_fetch, self._chain(self._sizes, key, 1), [page], deadline_ms=self._deadline_ms,
                   then=lambda report, error: then(PageResult.DEADLINE if error is not None else worst(report), int.from_bytes(page, "little")))


def _same_length(keys: Sequence[str], memory: Sequence[Any]) -> None:
    if len(keys) != len(memory):
        raise InvalidArgument(Code.INVALID_ARGUMENT, f"{len(keys)} keys, {len(memory)} buffers")


def worst(report: Report | None) -> PageResult:
    """OK when all pages are, EXISTS when some were there before, else the first failure."""
    result = PageResult.OK
    for code in report.codes if report is not None else b"":
        if code == PageResult.EXISTS:
            result = PageResult.EXISTS
        elif code != PageResult.OK:
            return PageResult(code)
    return result
