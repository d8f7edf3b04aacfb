"""What the scheduler's side tells the workers each step."""
from __future__ import annotations

import dataclasses

import cistern
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclasses.dataclass
class Load:
    """Blocks [first, first + ...) of one KV group's chain, into the engine's blocks."""

    group: int
    chain: cistern.Chain | None  # None: it could not be made, the load has failed.
    first: int  # cistern block that the first engine block begins with
    block_ids: list[int]


@dataclasses.dataclass
class Save:
    group: int
    chain: cistern.Chain
    first: int
    block_ids: list[int]


@dataclasses.dataclass
class StepPlan(KVConnectorMetadata):
    loads: dict[str, list[Load]] = dataclasses.field(default_factory=dict)  # by request
    saves: list[Save] = dataclasses.field(default_factory=list)
    number: int = 0  # Of a step that loads before or while the model runs; 0: of all others.


@dataclasses.dataclass
class StepsLoaded(KVConnectorWorkerMetadata):
    """Steps with a number whose end the scheduler learns of; that loads failed it is told beside this."""

    numbers: set[int]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        return StepsLoaded(self.numbers | other.numbers)
