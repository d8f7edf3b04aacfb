"""Values under opaque keys, for engines that name their pages themselves (LMCache, SGLang): get, put and exists in batches.

A key is a string; its value never changes: what is put again under it is the same by the caller's word, and the first copy stays.
Values of any size up to VALUE_BYTES_MAX live in a space of their own, apart from every other space and from token chains. Nothing is
deleted: values that are not used go when room is needed.
"""
from __future__ import annotations

import hashlib
import selectors
import threading
from typing import Any, Callable, Sequence

from ._cistern import Chain, Layout, Report
from ._client import Client
from ._errors import Error, PageResult

PART_BYTES_MAX = 4 << 20
VALUE_BYTES_MAX = 64 * PART_BYTES_MAX
SIZE_BYTES = 8
BATCH_KEYS_MAX = 1024  # Calls outstanding of one batch; bigger batches go in pieces.
KEY_TOKENS = 8  # SHA-256 as token ids.


LOOK_S = 0.2  # How often a waiting call looks whether the driver is still there ...
STAND_IN_S = 0.005  # ... and drives, where it is not.


class Driver:
    """Drives one client's submitted calls on a thread of its own, so that callers on any thread only wait for results."""

    def __init__(self, client: Client):
        self._client, self._ending = client, threading.Event()
        self._thread = threading.Thread(target=self._run, name="cistern-driver", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(self._client.fileno(), selectors.EVENT_READ)
                while not self._ending.is_set():
                    if not self._client.poll():
                        selector.select(0.1)
            except Error:
                pass  # The client was closed: its calls have ended.

    def wait(self, ended: threading.Event) -> None:
        """Every call has a deadline, but somebody has to look at it: once the thread is gone, whoever waits."""
        while not ended.wait(LOOK_S if self._thread.is_alive() else STAND_IN_S):
            if self._thread.is_alive():
                continue
            try:
                self._client.poll()
            except Error:
                pass  # The client was closed: its calls end with it.

    def close(self) -> None:
        self._ending.set()
        self._thread.join()


class Batch:
    """Results of some calls, in their order; `done` runs once, after the last, on the driver's thread."""

    def __init__(self, count: int, done: Callable[[list[Any]], None]):
        self.results: list[Any] = [None] * count
        self._left, self._done, self._lock = count, done, threading.Lock()
        if count == 0:
            done(self.results)

    def end(self, index: int, result: Any) -> None:
        self.results[index] = result
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done(self.results)


def size_page(size: int) -> bytes:
    return size.to_bytes(SIZE_BYTES, "little")


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
        """Each buffer takes the value of its key; a value of another size is a miss."""
        check_pairs(keys, buffers)
        batch = Batch(len(keys), done)
        for i, (key, buffer) in enumerate(zip(keys, buffers)):
            self._guard(batch, i, PageResult.INVALID, lambda i=i, key=key, buffer=buffer: self._fetch(key, buffer, batch, i))

    def submit_put(self, keys: Sequence[str], values: Sequence[Any], done: Callable[[list[PageResult]], None]) -> None:
        """EXISTS and OK both mean that the value is there."""
        check_pairs(keys, values)
        batch = Batch(len(keys), done)
        for i, (key, value) in enumerate(zip(keys, values)):
            self._guard(batch, i, PageResult.INVALID, lambda i=i, key=key, value=value: self._store(key, value, batch, i))

    def submit_exists(self, keys: Sequence[str], done: Callable[[list[bool]], None], size: int | None = None) -> None:
        """Whether each key has a value; `size`, where it is known, looks at the value itself."""
        batch = Batch(len(keys), done)
        for i, key in enumerate(keys):
            def look(i: int = i, key: str = key) -> None:
                chain = self._value_chain(key, size) if size is not None else self._chain(self._sizes, key, 1)
                self.client.submit_lookup(chain, lambda blocks, error: batch.end(i, error is None and blocks == chain.blocks),
                                          deadline_ms=self._deadline_ms)
            self._guard(batch, i, False, look)

    # ------------------------------------------------ the same, waiting
    def get(self, keys: Sequence[str], buffers: Sequence[Any]) -> list[PageResult]:
        return self._wait(self.submit_get, keys, buffers)

    def put(self, keys: Sequence[str], values: Sequence[Any]) -> list[PageResult]:
        return self._wait(self.submit_put, keys, values)

    def exists(self, keys: Sequence[str], size: int | None = None) -> list[bool]:
        found: list[bool] = []
        for at in range(0, len(keys), BATCH_KEYS_MAX):
            found += self._await(lambda done, at=at: self.submit_exists(keys[at:at + BATCH_KEYS_MAX], done, size))
        return found

    def size_of(self, key: str) -> int | None:
        page = bytearray(SIZE_BYTES)
        try:
            report = self.client.fetch(self._chain(self._sizes, key, 1), [page], deadline_ms=self._deadline_ms)
        except Error:
            return None
        return int.from_bytes(page, "little") if report else None

    # ------------------------------------------------ inside
    def _wait(self, submit: Callable[..., None], keys: Sequence[str], memory: Sequence[Any]) -> list[PageResult]:
        check_pairs(keys, memory)
        out: list[PageResult] = []
        for at in range(0, len(keys), BATCH_KEYS_MAX):
            out += self._await(lambda done, at=at: submit(keys[at:at + BATCH_KEYS_MAX], memory[at:at + BATCH_KEYS_MAX], done))
        return out

    def _await(self, submit: Callable[[Callable[[list[Any]], None]], None]) -> list[Any]:
        ended, held = threading.Event(), []

        def done(results: list[Any]) -> None:
            held.append(results)
            ended.set()
        submit(done)
        self._driver.wait(ended)
        return held[0]

    def _guard(self, batch: Batch, index: int, otherwise: Any, submit: Callable[[], None]) -> None:
        try:
            submit()
        except Error:
            batch.end(index, otherwise)

    def _chain(self, layout: Layout, key: str, blocks: int) -> Chain:
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
                self._guard(batch, index, PageResult.BUSY, lambda: self._store_size(key, size, batch, index, result))
            else:
                batch.end(index, result)
        self.client.submit_store(self._value_chain(key, size), pages, stored, deadline_ms=self._deadline_ms)

    def _store_size(self, key: str, size: int, batch: Batch, index: int, result: PageResult) -> None:
        """After the value: a key is there only when all of it is."""
        self.client.submit_store(self._chain(self._sizes, key, 1), [size_page(size)], lambda report, error: batch.end(
            index, result if error is None and worst(report) in (PageResult.OK, PageResult.EXISTS) else PageResult.BUSY),
            deadline_ms=self._deadline_ms)

    def _fetch(self, key: str, buffer: Any, batch: Batch, index: int) -> None:
        pages, size = self._pages(buffer, True)
        if not 0 < size <= VALUE_BYTES_MAX:
            batch.end(index, PageResult.MISS)
            return
        self.client.submit_fetch(self._value_chain(key, size), pages, lambda report, error: batch.end(
            index, PageResult.DEADLINE if error is not None else worst(report)), deadline_ms=self._deadline_ms)


def check_pairs(keys: Sequence[str], memory: Sequence[Any]) -> None:
    if len(keys) != len(memory):
        raise ValueError(f"{len(keys)} keys, {len(memory)} buffers")


def worst(report: Report | None) -> PageResult:
    """OK when all pages are, EXISTS when some were there before, else the first failure."""
    result = PageResult.OK
    for code in report.codes if report is not None else b"":
        if code == PageResult.EXISTS:
            result = PageResult.EXISTS
        elif code != PageResult.OK:
            return PageResult(code)
    return result
