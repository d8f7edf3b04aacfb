"""A worker's side: loads pages into the engine's tensors and saves them out. Transfers run on two threads of its own; what the
model runner's thread does itself is copying pages into staging, before the engine may overwrite them."""
from __future__ import annotations

import collections
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

import cistern

from .groups import Group
from .layers import StepLoads
from .metadata import Load, Save, StepPlan
from .options import Options
from .pages import PageMover
from .session import Session

log = logging.getLogger("vllm.cistern")
SAVES_QUEUED_MAX = 256
LOADS_QUEUED_MAX = 4096
SHUTDOWN_S_MAX = 5.0


class Staging:
    """Copies of pages on their way out, within a bound. In the client's put window where that has room, so that nodes on this
    host take them from there. Any thread."""

    def __init__(self, bytes_max: int):
        self._left, self._lock = bytes_max, threading.Lock()

    def take(self, client: cistern.Client, nbytes: int) -> memoryview | None:
        with self._lock:
            if nbytes > self._left:
                return None
            self._left -= nbytes
        try:
            buffer = client.allocate(nbytes)
            return memoryview(buffer if buffer is not None else bytearray(nbytes))
        except BaseException:
            self.give_back(nbytes)
            raise

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self._left += nbytes


class WorkerSide:
    def __init__(self, session: Session, groups: list[Group], options: Options):
        self._session, self._groups, self._options = session, groups, options
        self._movers: list[PageMover] = []
        self._staging = Staging(options.staging_bytes)
        self._saves: queue.Queue[Any] = queue.Queue(SAVES_QUEUED_MAX)
        self._loads: queue.Queue[Any] = queue.Queue(LOADS_QUEUED_MAX)
        self._threads: list[threading.Thread] = []
        self._layers: dict[str, int] = {}  # Places in the one group of loads by layers; empty: not by layers.
        self._step: StepLoads | None = None
        self._loads_failed = False  # In this step, before or while the model ran: what it computed may be wrong.
        self._steps_loaded: set[int] = set()
        self._shares: dict[str, int] = {}  # The client's counters as last seen.
        self._lock = threading.Lock()  # Guards what follows.
        self._received: set[str] = set()
        self._failed: set[str] = set()
        self._bad_blocks: set[int] = set()
        self.counters: collections.Counter[str] = collections.Counter()

    def register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        movers = [PageMover(group, [kv_caches[name] for name in group.layer_names]) for group in self._groups]
        for mover in movers:
            mover.self_test()
        self._movers = movers
        if self._options.layerwise:
            self._layers = {name: i for i, name in enumerate(self._groups[0].layer_names)}
        for name, target in (("cistern-load", self._run_loads), ("cistern-save", self._run_saves)):
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        log.info("cistern: %s", "; ".join(
            f"group {g.index}: {len(g.layer_names)} layers, {g.encoding.name}, {g.block_tokens} tokens a block, "
            f"{'in place' if g.direct else 're-tiled'}" for g in self._groups))

    # ------------------------------------------------ loads
    def start_loads(self, plan: StepPlan, in_background: bool) -> None:
        if self._layers and plan.loads:
            self._start_layers([load for loads in plan.loads.values() for load in loads])
            return
        for request_id, loads in plan.loads.items():
            if not in_background:
                self._loads_failed |= self._load_request(request_id, loads)
                continue
            try:
                self._loads.put_nowait(functools.partial(self._load_request, request_id, loads, tell=True))
            except queue.Full:
                self._end_load(request_id, [set(load.block_ids) for load in loads])

    def _run_loads(self) -> None:
        while (work := self._loads.get()) is not None:
            work()

    def _start_layers(self, loads: list[Load]) -> None:
        self._step = StepLoads(self._movers[0], loads, self._options.load_deadline_ms)
        try:
            self._loads.put_nowait(functools.partial(self._step.run, self._session.client))
        except queue.Full:
            self._step.finish()  # The layers find that it is over.

    def wait_layer(self, name: str) -> None:
        if self._step is not None and (layer := self._layers.get(name)) is not None:
            self._step.wait(layer)

    def _end_layers(self) -> None:
        """Behind the model: what became of the loads by layers."""
        step, self._step = self._step, None
        if step is None:
            return
        bad, asked = step.finish()
        self._loads_failed |= bool(bad)
        self._count_shares()
        self._count("load_us", int(step.loading_s * 1e6))
        self._count("layer_wait_us", int(step.waited_s * 1e6))
        self._count_load(step.codes, step.bytes, sum(len(load.block_ids) for load in step.loads) - len(bad))
        self._end_load("", [bad], tell=False)
        if not asked:
            self._count("layers_not_asked")
            self._layers = {}
            log.warning("cistern: the model did not ask for every layer, so what was loaded by layers is computed; from now on loads are whole")

    def _load_request(self, request_id: str, loads: list[Load], tell: bool = False) -> bool:
        """Whether any of it failed."""
        begin = time.perf_counter()
        bad = []
        for load in loads:
            try:
                bad.append(self._load(load))
            except Exception as error:  # Whatever it is: the engine computes what was not loaded.
                self._count("load_errors")
                log.warning("cistern: a load failed: %s", error)
                bad.append(set(load.block_ids))
        self._count("load_us", int((time.perf_counter() - begin) * 1e6))
        self._count_shares()
        self._end_load(request_id, bad, tell)
        return any(bad)

    def _end_load(self, request_id: str, bad: list[set[int]], tell: bool = True) -> None:
        with self._lock:
            self.counters["failed_blocks"] += sum(map(len, bad))
            if len(self._groups) == 1:
                self._bad_blocks |= bad[0]
            elif any(bad):  # Block ids mean nothing beyond their group.
                self._failed.add(request_id)
            if tell:
                self._received.add(request_id)

    def _load(self, load: Load) -> set[int]:
        """Gives the engine blocks that did not arrive."""
        group, client = self._groups[load.group], self._session.client
        wanted = len(load.block_ids) * group.per_page
        if not wanted:
            return set()
        if client is None or load.chain is None:
            return set(load.block_ids)
        options = dict(deadline_ms=self._options.load_deadline_ms, slice_first=group.slice_first, slice_count=group.heads)
        if load.first == 0:  # In one call: each costs the wait for an interpreter that the engine keeps busy.
            return self._bring(load.block_ids, load.group, lambda pages: client.fetch(load.chain, pages, host_shared=group.shared, **options))
        hit = client.plan(load.chain, **options)
        count = min(max(hit.blocks - load.first, 0), wanted) // group.per_page  # Engine blocks.
        bad = set(load.block_ids[count:])
        if count:
            bad |= self._bring(load.block_ids[:count], load.group, lambda pages: client.load(
                hit, pages, first=load.first, host_shared=group.shared, **options))
        client.release(hit)
        return bad

    def _bring(self, ids: list[int], index: int, call: Callable[[Any], cistern.Report]) -> set[int]:
        """Pages of these engine blocks by `call`; gives the blocks that did not arrive whole."""
        group, mover = self._groups[index], self._movers[index]
        memory = None if group.direct else memoryview(bytearray(len(ids) * mover.page_bytes))
        report = call(mover.in_place(ids) if memory is None else mover.split(memory))
        broken = {i // group.per_page for i in report.failed}
        if memory is not None:
            mover.copy_in(ids, memory)  # Of broken ones too: the engine computes them anew.
        self._count_load([report.codes[i] for i in report.failed], report.bytes, len(ids) - len(broken))
        return {ids[i] for i in broken}

    def _count_load(self, failed_codes: list[int], nbytes: int, blocks: int) -> None:
        for code in map(cistern.PageResult, failed_codes):
            if code is not cistern.PageResult.MISS:  # One that is not there is no damage.
                self._count("failed_pages_" + code.name.lower())
        self._count("loaded_bytes", nbytes)
        self._count("loaded_blocks", blocks)

    def _count_shares(self) -> None:
        """What came from other ranks of this host, and why not, as the client counts it."""
        client = self._session.client
        if client is None or not any(group.shared for group in self._groups):
            return
        now = {name.removeprefix("client_").removesuffix("_total"): value for name, value in client.counters().items()
               if name.startswith("client_share_")}
        for name, value in now.items():
            self._count(name, value - self._shares.get(name, 0))
        if now.get("share_failed", 0) > self._shares.get("share_failed", 0):
            log.warning("cistern: ranks of this host load one copy each: no shared memory for share_bytes under /dev/shm")
        self._shares = now

    # ------------------------------------------------ saves
    def end_step(self, plan: StepPlan) -> None:
        """Behind the model, once a step."""
        self._end_layers()
        if plan.number:
            self._steps_loaded.add(plan.number)
        failed, self._loads_failed = self._loads_failed, False
        if failed:  # What the model made of pages that were not there is not what their tokens make.
            self._count("dropped_blocks", sum(len(save.block_ids) for save in plan.saves))
        else:
            self.start_saves(plan)

    def start_saves(self, plan: StepPlan) -> None:
        begin = time.perf_counter()
        client = self._session.client
        for save in plan.saves if client is not None else ():
            if not self._queue_save(client, save):
                self._count("dropped_blocks", len(save.block_ids))
        if plan.saves:
            self._count("save_copy_us", int((time.perf_counter() - begin) * 1e6))

    def _queue_save(self, client: cistern.Client, save: Save) -> bool:
        memory = None
        try:
            memory = self._staging.take(client, len(save.block_ids) * self._movers[save.group].page_bytes)
            if memory is not None:
                self._movers[save.group].copy_out(save.block_ids, memory)
                self._saves.put_nowait((client, save, memory))
                return True
        except queue.Full:
            pass
        except Exception as error:  # A lost save is a miss, and none of the engine's affair.
            self._count("save_errors")
            log.warning("cistern: a save failed: %s", error)
        if memory is not None:
            self._staging.give_back(len(memory))
        return False

    def _run_saves(self) -> None:
        while (item := self._saves.get()) is not None:
            client, save, memory = item
            try:
                self._store(client, save, memory)
            except Exception as error:
                self._count("save_errors")
                log.warning("cistern: a save failed: %s", error)
            finally:
                nbytes = len(memory)
                del item, memory
                self._staging.give_back(nbytes)

    def _store(self, client: cistern.Client, save: Save, memory: memoryview) -> None:
        group = self._groups[save.group]
        report = client.store(save.chain, self._movers[save.group].split(memory), first=save.first,
                              deadline_ms=self._options.store_deadline_ms, slice_first=group.slice_first, slice_count=group.heads)
        self._count("saved_bytes", report.bytes)
        self._count("saved_pages", report.ok_pages)
        for i in report.failed:
            self._count("refused_pages_" + cistern.PageResult(report.codes[i]).name.lower())

    # ------------------------------------------------ results
    def take_results(self) -> tuple[set[str], set[str]]:
        with self._lock:
            received, self._received = self._received, set()
            failed, self._failed = self._failed, set()
        return received, failed

    def take_bad_blocks(self) -> set[int]:
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def take_steps_loaded(self) -> set[int]:
        numbers, self._steps_loaded = self._steps_loaded, set()
        return numbers

    def _count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self.counters[name] += by

    def take_counters(self) -> dict[str, int]:
        with self._lock:
            counters, self.counters = self.counters, collections.Counter()
        return dict(counters)

    def shutdown(self) -> None:
        """Lets saves that are under way end, within a bound."""
        deadline = time.monotonic() + SHUTDOWN_S_MAX
        for waiting in (self._saves, self._loads):
            try:
                waiting.put(None, timeout=max(0.0, deadline - time.monotonic()))
            except queue.Full:
                pass
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
