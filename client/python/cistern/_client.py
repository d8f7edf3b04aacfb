"""Client: finds, loads and stores KV blocks. Thread-safe; the GIL is released while a call waits."""
from __future__ import annotations

import enum
import os
from typing import Any, NamedTuple, Sequence

from . import _cistern
from ._cistern import Buffer, Chain, Hit, Layout, Report
from ._errors import PageResult

ROUTER_DEFAULT = "127.0.0.1:7400"


class ExtraKind(enum.IntEnum):
    LORA = 1
    CONTENT = 2
    PROMPT_EMBEDDING = 3
    SALT = 4


class Extra(NamedTuple):
    """What besides tokens makes the bytes of a block, and of all after it, differ."""

    kind: int
    block: int
    offset: int
    value: bytes


def results(report: Report) -> list[PageResult]:
    """One result a page."""
    return [PageResult(code) for code in report.codes]


class Client:
    """A connection to one cluster.

    `router` defaults to CISTERN_ROUTER, then 127.0.0.1:7400. Calls take `deadline_ms` (0: the client's) and, for
    readers that hold only some head slices, `slice_first` and `slice_count`; load and fetch also `span_first` and `span_count`,
    for some ranges of layers. Memory named by pages must not be touched until a call has ended; results of Client.load and Client.fetch that are PageResult.OK were checked after they arrived.
    """

    def __init__(self, router: str | None = None, *, transport: str = "auto", tenant: str = "", spin: bool = False,
                 deadline_ms: int = 2000, connect_deadline_ms: int = 5000, wait_for_router: bool = True,
                 lease_ttl_ms: int = 2000, window_bytes: int = 64 << 20, breaker_failures: int = 5,
                 breaker_retry_ms: int = 500, negative_ttl_ms: int = 1000, host_share: str = "", host_share_bytes: int = 64 << 20):
        self.router = router or os.environ.get("CISTERN_ROUTER") or ROUTER_DEFAULT
        self._native = _cistern.NativeClient.connect(
            router=self.router, transport=transport, tenant=tenant, spin=spin, deadline_ms=deadline_ms,
            connect_deadline_ms=connect_deadline_ms, wait_for_router=wait_for_router, lease_ttl_ms=lease_ttl_ms,
            window_bytes=window_bytes, breaker_failures=breaker_failures, breaker_retry_ms=breaker_retry_ms,
            negative_ttl_ms=negative_ttl_ms, host_share=host_share, host_share_bytes=host_share_bytes)
        self.submit_lookup = self._native.submit_lookup
        self.submit_plan = self._native.submit_plan
        self.submit_load = self._native.submit_load
        self.submit_fetch = self._native.submit_fetch
        self.submit_store = self._native.submit_store
        self.cancel = self._native.cancel
        self.poll = self._native.poll
        self.fileno = self._native.fileno

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends what is outstanding: callbacks are told, and calls that other threads wait in end with CANCELLED, as a result for each page
        or as an Error. Buffers of allocate() stay valid as long as they are held."""
        self._native.close()

    @property
    def closed(self) -> bool:
        return self._native.closed

    def chain(self, layout: Layout, tokens: Any, extras: Any = None) -> Chain:
        """Hashes whole blocks of tokens: a sequence of ints, or a buffer of integers that is read where it lies."""
        return self._native.chain(layout, tokens, extras)

    def extend(self, prefix: Chain, tokens: Any, extras: Any = None) -> Chain:
        """A longer chain that shares `prefix`; only what is new is hashed."""
        return self._native.extend(prefix, tokens, extras)

    def lookup(self, chain: Chain, **options: int) -> int:
        """Leading blocks that are cached; leases nothing."""
        return self._native.lookup(chain, **options)

    def plan(self, chain: Chain, **options: int) -> Hit:
        """The same, leased until released, dropped or the lease ends."""
        return self._native.plan(chain, **options)

    def load(self, hit: Hit, pages: Any, **options: int) -> Report:
        """Loads blocks [first, first + len(pages)) of a hit into memory of the caller."""
        return self._native.load(hit, pages, **options)

    def fetch(self, chain: Chain, pages: Any, **options: int) -> Report:
        """Plan and load in one: page i takes block i."""
        return self._native.fetch(chain, pages, **options)

    def store(self, chain: Chain, pages: Any, **options: int) -> Report:
        """Stores blocks [first, first + len(pages)) of the chain; ends when each is visible or refused."""
        return self._native.store(chain, pages, **options)

    def remove(self, chains: Sequence[Chain], *, deadline_ms: int = 0) -> int:
        """Removes all parts of the chains' blocks from every node of the map, and counts them. Loads under way keep their bytes; a
        node that does not answer is an Error, and may have them still."""
        return self._native.remove(chains, deadline_ms=deadline_ms)

    def release(self, hit: Hit) -> None:
        self._native.release(hit)

    def allocate(self, nbytes: int) -> Buffer | None:
        """Memory that stores to nodes on this host take without a copy; None when there is no room."""
        return self._native.allocate(nbytes)

    def counters(self) -> dict[str, int]:
        return self._native.counters()
