"""LMCache's L2 adapter over cistern: in LMCache's configuration

    {"type": "native_plugin", "module_path": "cistern.lmcache", "class_name": "CisternClient",
     "adapter_params": {"router": "127.0.0.1:7400"}}

The methods are those that LMCache asks of a native connector: batches go in, a file descriptor tells when some have ended, and
drain_completions gives (id, all right, error, one bool a key). Nothing is ever deleted: values that are not used go by themselves.
"""
from __future__ import annotations

import collections
import os
import threading
from typing import Any, Sequence

from ._client import Client
from ._errors import PageResult
from .keyed import KeyedStore

FORMAT = "lmcache/1"  # Another value: nothing stored before is found.
THERE = (PageResult.OK, PageResult.EXISTS)


class CisternClient:
    """Any thread. `space` keeps engines apart that LMCache's own keys would not: give it the weights' version."""

    def __init__(self, router: str | None = None, *, space: str = "", transport: str = "auto", tenant: str = "", deadline_ms: int = 2000,
                 window_bytes: int = 64 << 20):
        self._client = Client(router, transport=transport, tenant=tenant, deadline_ms=deadline_ms, window_bytes=window_bytes, wait_for_router=False)
        self._store = KeyedStore(self._client, f"{FORMAT};{space}", deadline_ms=deadline_ms)
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if hasattr(os, "eventfd") else _no_eventfd()
        self._lock = threading.Lock()
        self._next = 0
        self._ended: collections.deque[tuple[int, bool, str, list[bool]]] = collections.deque()
        self._closed, self._fd_is_ours = False, True

    def event_fd(self) -> int:
        return self._fd

    def submit_batch_get(self, keys: Sequence[str], memviews: Sequence[Any]) -> int:
        return self._submit(len(keys), lambda end: self._store.submit_get(keys, memviews, lambda got: end([r == PageResult.OK for r in got], got)))

    def submit_batch_set(self, keys: Sequence[str], memviews: Sequence[Any]) -> int:
        return self._submit(len(keys), lambda end: self._store.submit_put(keys, memviews, lambda put: end([r in THERE for r in put], put)))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._submit(len(keys), lambda end: self._store.submit_exists(keys, lambda found: end(found, [])))

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool]]]:
        """After close() too: what that has ended."""
        with self._lock:
            if self._fd_is_ours:  # The number of a closed one may be somebody else's.
                try:
                    os.eventfd_read(self._fd)
                except BlockingIOError:
                    pass
            ended, self._ended = list(self._ended), collections.deque()
        return ended

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._store.close()
        self._client.close()  # Ends what is outstanding; LMCache may still drain it.
        with self._lock:
            self._fd_is_ours = False
            os.close(self._fd)

    def _submit(self, count: int, start: Any) -> int:
        with self._lock:
            self._next += 1
            number = self._next

        def end(right: list[bool], results: list[PageResult]) -> None:
            # A miss is no error: the list says which keys. Reasons of refused or failed ones go along for people.
            reasons = sorted({r.name for r in results if r not in THERE and r != PageResult.MISS})
            tell(not reasons, ", ".join(reasons), list(right))

        def tell(well: bool, why: str, right: list[bool]) -> None:
            with self._lock:
                self._ended.append((number, well, why, right))
                if self._fd_is_ours:
                    os.eventfd_write(self._fd, 1)
        try:
            start(end)
        except ValueError as error:  # Refused as a whole, before any key.
            tell(False, str(error), [False] * count)
        return number


def _no_eventfd() -> int:
    raise OSError("LMCache's native plugins need os.eventfd: Python 3.10 or newer")
