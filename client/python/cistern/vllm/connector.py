"""CisternConnector: what vLLM sees. Two objects of it live in an engine, one in the scheduler and one in each worker; each hands
its calls to its side."""
from __future__ import annotations

import uuid
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from .groups import make_groups, refuse
from .identity import compute_digest
from .metadata import StepsLoaded
from .options import Options
from .scheduler import SchedulerSide
from .session import Session
from .stats import CisternPromMetrics, CisternStats
from .worker import WorkerSide


class CisternConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = self._kv_transfer_config
        if transfer.kv_load_failure_policy != "recompute":
            refuse("kv_load_failure_policy must be recompute: with vLLM's default one lost page fails its request")
        self._options = Options.from_extra(transfer.kv_connector_extra_config)
        groups = make_groups(vllm_config, kv_cache_config, self._options, self._digest(""))
        shares = self._options.share_bytes > 0 and any(group.shared for group in groups)
        self._session = Session.take(self._options, f"vllm {transfer.engine_id}" if shares else "")
        self._scheduler = SchedulerSide(
            self._session, groups, self._options, vllm_config.parallel_config.tensor_parallel_size) if role == KVConnectorRole.SCHEDULER else None
        self._worker = WorkerSide(self._session, groups, self._options) if role == KVConnectorRole.WORKER else None
        self._in_background = self._options.load_async or len(groups) > 1

    def _digest(self, epoch: str) -> bytes:
        return compute_digest(self._vllm_config, self._options.weights_id, epoch)

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # A lost save is only a miss.

    # ------------------------------------------------ scheduler side
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._scheduler.match(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        return self._scheduler.plan_step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduler.received(connector_output.finished_recving)
        if connector_output.kv_connector_worker_meta is not None:
            self._scheduler.loaded(connector_output.kv_connector_worker_meta.numbers)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler.finished(request.request_id)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, [])

    def reset_cache(self) -> bool:
        """The weights have changed: nothing stored before is found by this engine again, nor what it stores by others."""
        epoch = uuid.uuid4().hex
        self._scheduler.use(make_groups(self._vllm_config, self._kv_cache_config, self._options, self._digest(epoch)))
        return True

    # ------------------------------------------------ worker side
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._worker.register(kv_caches)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._worker.start_loads(self._get_connector_metadata(), self._in_background)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._worker.wait_layer(layer_name)  # Loads that are not by layers are over here, or the model does not see their request.

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # Saved at the end of the step, when blocks are complete in every layer.

    def wait_for_save(self) -> None:
        self._worker.end_step(self._get_connector_metadata())

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        received, failed = self._worker.take_results()
        return KVConnectorTransferResults(finished_recving=received, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.take_bad_blocks()

    def build_connector_worker_meta(self) -> StepsLoaded | None:
        numbers = self._worker.take_steps_loaded()
        return StepsLoaded(numbers) if numbers else None

    # ------------------------------------------------ both
    def get_kv_connector_stats(self) -> CisternStats | None:
        if self._worker is not None:
            counters = self._worker.take_counters()
        else:
            counters = dict(self._scheduler.counters)
            self._scheduler.counters.clear()
        return CisternStats(data=counters) if counters else None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return bool(extra_config.get("layerwise"))  # A replayed graph would not ask for its layers.

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> CisternStats:
        return CisternStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> CisternPromMetrics:
        return CisternPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
        self._session.leave()
