"""What the connector counts, for vLLM's log and its Prometheus endpoint."""
from __future__ import annotations

import dataclasses
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats


@dataclasses.dataclass
class CisternStats(KVConnectorStats):
    """Counters by name, of one interval."""

    def reset(self) -> None:
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not self.data


# Counters with a metric of their own; the rest is summed under cistern_connector_events_total by name.
BYTES = {"loaded_bytes": "Bytes loaded into the engine", "saved_bytes": "Bytes stored by the engine"}


class CisternPromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._bytes = {name: self._counter_cls(name=f"vllm:cistern_{name}", documentation=text, labelnames=labelnames)
                       for name, text in BYTES.items()}
        self._events = self._counter_cls(name="vllm:cistern_connector_events", documentation="What the connector counted, by name",
                                         labelnames=[*labelnames, "event"])

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for name, value in transfer_stats_data.items():
            if name in self._bytes:
                self._bytes[name].labels(*labels).inc(value)
            else:
                self._events.labels(*labels, name).inc(value)
