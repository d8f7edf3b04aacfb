"""Submitted calls of one client for callers on any thread: who drives them, how long anybody waits, and that memory is let go of."""
from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from typing import Any, Callable

from ._client import Client
from ._errors import Code, Error

log = logging.getLogger("cistern")
WAIT_SLACK_S = 5.0  # Beyond the deadlines of its calls; a wait that long ends by cancelling them.
TICK_S = 0.1  # How often a waiting thread looks whether somebody still drives,
STAND_IN_S = 0.005  # and drives where nobody does.
REFUSED = (Error, TypeError, ValueError, OverflowError, BufferError)  # What a call raises that has not begun.


class Batch:
    """Results of some calls, in their order; `done` runs once, after the last, on the thread that drives. A result may take several
    calls one after the other. Any thread."""

    def __init__(self, count: int, done: Callable[[list[Any]], None] = lambda results: None):
        self.results: list[Any] = [None] * count
        self.ended = threading.Event()
        self._left, self._done, self._lock = count, done, threading.Lock()
        self._calls: dict[object, int | None] = {}  # Outstanding; None: not yet, or never, known by a number.
        self._cancelled = False
        if count == 0:
            self._finish()

    def call(self, client: Client, index: int, otherwise: Any, submit: Callable[..., int], *args: Any,
             then: Callable[[Any, Error | None], None], **options: int) -> None:
        """submit(*args, callback, **options), whose end `then` takes; where it does not begin the result is `otherwise`."""
        token = object()

        def ended(result: Any, error: Error | None) -> None:
            with self._lock:
                self._calls.pop(token, None)
            try:
                then(result, error)
            except BaseException:
                self.end(index, otherwise)
                raise

        with self._lock:
            begins = not self._cancelled
            if begins:
                self._calls[token] = None
        if not begins:
            self.end(index, otherwise)
            return
        try:
            # Other exceptions come out of signal handlers, perhaps behind a call that has begun: `ended` alone ends that.
            number = submit(*args, ended, **options)
        except REFUSED as error:
            with self._lock:
                self._calls.pop(token, None)
            log.debug("cistern: a call was refused: %s", error)
            self.end(index, otherwise)
            return
        with self._lock:
            if token in self._calls:
                self._calls[token] = number
            late = self._cancelled and token in self._calls
        if late:
            cancel(client, number)

    def end(self, index: int, result: Any) -> None:
        with self._lock:
            if self.results[index] is not None:
                return
            self.results[index] = result
            self._left -= 1
            last = self._left == 0
        if last:
            self._finish()

    def cancel(self, client: Client) -> None:
        """Nothing begins any more; what is outstanding ends soon."""
        with self._lock:
            self._cancelled = True
            numbers = [number for number in self._calls.values() if number is not None]
        for number in numbers:
            cancel(client, number)

    @property
    def outstanding(self) -> bool:
        """Whether a call may still touch its memory."""
        with self._lock:
            return bool(self._calls)

    def _finish(self) -> None:
        try:
            self._done(self.results)
        finally:
            self.ended.set()


def cancel(client: Client, number: int) -> None:
    try:
        client.cancel(number)
    except Error:
        pass  # Closed: whatever was outstanding has ended, or does.


class Driver:
    """Drives one client's submitted calls on a thread of its own, so that callers on any thread only wait for results. The thread
    outlives what goes wrong in it; a forked child has none, and no client either: its connections are the parent's."""

    def __init__(self, client: Client):
        self._client, self._ending, self._pid = client, threading.Event(), os.getpid()
        self._lock = threading.Lock()  # Of what follows; never taken in a forked child.
        self._batches: set[Batch] = set()
        self._told = False
        self._thread = self._start()

    def usable(self) -> bool:
        """Whether calls can be made, of whose ends whoever waits takes care. Why not goes to the log, once."""
        if os.getpid() != self._pid:
            if not self._told:
                self._told = True
                log.warning("cistern: this store belongs to process %d; a forked child has to make its own: all is a miss", self._pid)
            return False
        return True

    def ready(self) -> bool:
        """Whether there is a thread that drives; one that has ended is made anew."""
        if not self.usable() or self._ending.is_set() or self._client.closed:
            return False
        with self._lock:
            if not self._thread.is_alive():
                log.warning("cistern: the thread that drives the client had ended; there is a new one")
                self._thread = self._start()
        return True

    def add(self, batch: Batch) -> None:
        """Batches that nobody waits for end with close() at the latest."""
        with self._lock:
            self._batches = {b for b in self._batches if not b.ended.is_set()} if len(self._batches) >= 64 else self._batches
            self._batches.add(batch)

    def run(self, batch: Batch, begin: Callable[[], None], seconds: float, otherwise: Any) -> list[Any]:
        """begin() and wait until the batch has ended, at most that long and WAIT_SLACK_S. However this is left, by an exception too,
        no call of the batch touches memory any more. `otherwise`: what has no result by then."""
        try:
            begin()
            until = time.monotonic() + seconds + WAIT_SLACK_S
            while not batch.ended.wait(TICK_S if self.ready() else STAND_IN_S):
                if time.monotonic() > until:
                    log.error("cistern: calls did not end within %.1f s of their deadlines; they are cancelled", WAIT_SLACK_S)
                    break
                if not self.ready():
                    self._poll()
        finally:
            if batch.outstanding:
                self.let_go(batch)
        for i in range(len(batch.results)):
            batch.end(i, otherwise)
        return list(batch.results)

    def let_go(self, batch: Batch) -> None:
        """Cancels a batch and waits until its memory is the caller's again. Interrupts do not shorten that."""
        interrupt: BaseException | None = None
        until = time.monotonic() + WAIT_SLACK_S
        while batch.outstanding:
            try:
                batch.cancel(self._client)
                if time.monotonic() > until and not self._client.closed:
                    log.error("cistern: cancelled calls did not end within %.1f s; the client is closed, which ends them", WAIT_SLACK_S)
                    self._client.close()
                elif time.monotonic() > until + WAIT_SLACK_S:
                    break
                self._poll()
                time.sleep(0.001)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Ends what is outstanding."""
        self._ending.set()
        if os.getpid() != self._pid:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._lock:
            batches, self._batches = self._batches, set()
        for batch in batches:
            self.let_go(batch)

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="cistern-driver", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._drive()
            except Error as error:
                if error.code == Code.FAILED_PRECONDITION:
                    return  # The client is closed.
                self._failed(error)
            except Exception as error:
                self._failed(error)

    def _drive(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._client.fileno(), selectors.EVENT_READ)
            while not self._ending.is_set():
                if not self._client.poll():
                    selector.select(TICK_S)

    def _failed(self, error: Exception) -> None:
        log.error("cistern: driving the client failed and goes on: %s: %s", type(error).__name__, error)
        self._ending.wait(TICK_S)  # No busy loop, whatever it is.

    def _poll(self) -> None:
        try:
            self._client.poll()
        except Exception as error:
            log.debug("cistern: poll: %s", error)
