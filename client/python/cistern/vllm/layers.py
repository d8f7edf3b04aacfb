"""Loads of one step, layer by layer: the model begins with its first layers while later ones are still on their way."""
from __future__ import annotations

import logging
import threading
import time
from typing import Any

import torch

import cistern

from .metadata import Load
from .pages import PageMover

log = logging.getLogger("vllm.cistern")


class StepLoads:
    """Brings pages in range by range of layers (cistern's spans) and layer by layer into the engine's tensors.

    Two threads: run() on the loading one; wait() and finish() on the model's, for whom each wait ends by the deadline. A range is checked whole in memory of
    its own before any of it is copied to the engine, and nothing is copied once the model has gone on without: the pages may be another request's then.
    """

    def __init__(self, mover: PageMover, loads: list[Load], deadline_ms: int):
        self._mover, self.loads, self._deadline = mover, loads, time.monotonic() + deadline_ms / 1e3
        self._turn = threading.Condition()  # Guards what follows; held while a layer is copied.
        self._ready = 0  # Layers whose pages are in place, in the order of the group.
        self._over = False
        self._asked: set[int] = set()
        self._bad: set[int] = set()  # The engine's blocks.
        self.codes: list[int] = []  # Of pages that failed.
        self.bytes = 0
        self.loading_s = self.waited_s = 0.0  # Of either thread.

    # ------------------------------------------------ loading thread
    def run(self, client: cistern.Client | None) -> None:
        begin = time.monotonic()
        try:
            hits = [self._plan(client, load) for load in self.loads]
            layout = self._mover.group.layout
            per_span = self._mover.layers // layout.spans
            for span in range(layout.spans):
                stages = [self._bring(client, load, hit, span, per_span) for load, hit in zip(self.loads, hits)]
                for layer in range(per_span):
                    if not self._place(span * per_span + layer, [stage[layer] for stage in stages]):
                        return
        except Exception as error:  # Whatever it is: the engine computes what was not loaded.
            log.warning("cistern: a load failed: %s", error)
            self._give_up()
        finally:
            self.loading_s = time.monotonic() - begin

    def _left_ms(self) -> int:
        return max(1, int((self._deadline - time.monotonic()) * 1e3))

    def _plan(self, client: cistern.Client | None, load: Load) -> Any:
        """The load's lease; what of it is not there has failed."""
        group, hit, found = self._mover.group, None, 0
        if client is not None and load.chain is not None and load.block_ids:
            hit = client.plan(load.chain, deadline_ms=self._left_ms(), slice_first=group.slice_first, slice_count=group.heads)
            found = max(hit.blocks - load.first, 0) // group.per_page
        with self._turn:
            self._bad.update(load.block_ids[found:])
        return hit

    def _bring(self, client: cistern.Client, load: Load, hit: Any, span: int, layers: int) -> list[torch.Tensor]:
        """The range's pages of the load's blocks; those that did not arrive whole have failed."""
        group = self._mover.group
        stage = self._mover.stage(len(load.block_ids), layers)
        # A hit ends somewhere, and all behind it has failed already; blocks that failed in an earlier range are asked again with their neighbours.
        count = 0 if hit is None else min(max(hit.blocks - load.first, 0), len(load.block_ids) * group.per_page)
        if count:
            pages = cistern.PageMap(stage).pages(range(count))
            report = client.load(hit, pages, first=load.first, deadline_ms=self._left_ms(), slice_first=group.slice_first,
                                 slice_count=group.heads, span_first=span, span_count=1, host_shared=group.shared)
            with self._turn:
                self._bad.update(load.block_ids[i // group.per_page] for i in report.failed)
                self.codes += [report.codes[i] for i in report.failed]
                self.bytes += report.bytes
        return stage

    def _place(self, layer: int, stages: list[torch.Tensor]) -> bool:
        """One layer of all loads into the engine's pages, but for blocks that have failed. False: the model has gone on."""
        with self._turn:
            if self._over:
                return False
            for load, stage in zip(self.loads, stages):
                good = [i for i, block in enumerate(load.block_ids) if block not in self._bad]
                if good:
                    self._mover.copy_layer_in(layer, load.block_ids, good, stage)
            self._ready = layer + 1
            self._turn.notify_all()
            return True

    # ------------------------------------------------ the model's thread
    def wait(self, layer: int) -> None:
        """Until the layer's pages are in place, or it is known that they have failed."""
        begin = time.monotonic()
        with self._turn:
            self._asked.add(layer)
            self._turn.wait_for(lambda: self._over or self._ready > layer, max(0.0, self._deadline - begin))
            if self._ready <= layer:
                self._fail()
        self.waited_s += time.monotonic() - begin

    def finish(self) -> tuple[set[int], bool]:
        """The blocks that failed, and whether the model asked for every layer. One that it did not ask for it may have read before its pages were there."""
        with self._turn:
            asked = len(self._asked) == self._mover.layers
            if not asked:
                self._fail()
            self._over = True
            return set(self._bad), asked

    def _give_up(self) -> None:
        with self._turn:
            self._fail()
            self._turn.notify_all()

    def _fail(self) -> None:
        """All of it: with `_turn` held."""
        self._over = True
        for load in self.loads:
            self._bad.update(load.block_ids)
