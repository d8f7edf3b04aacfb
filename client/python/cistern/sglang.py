"""SGLang's HiCache storage over cistern: `--hicache-storage-backend dynamic` with the extra configuration

    {"backend_name": "cistern", "module_path": "cistern.sglang", "class_name": "CisternStorage", "interface_v1": 1,
     "router": "127.0.0.1:7400", "kv_cache_dtype": "bfloat16", "weights_id": "..."}

kv_cache_dtype and weights_id are asked for because SGLang's page hashes name neither: without them two engines would take each
other's pages for their own. Pages move between the host pool's own memory and the cluster, without a copy by us.
"""
from __future__ import annotations

import ctypes
import hashlib
import json
import logging
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo

from ._client import Client
from ._errors import Error, PageResult
from .keyed import KeyedStore

log = logging.getLogger("sglang.cistern")
FORMAT = "sglang/1"
THERE = (PageResult.OK, PageResult.EXISTS)
WANTED = ("kv_cache_dtype", "weights_id")


def view_of(address: int, nbytes: int) -> memoryview:
    """Host-pool memory by address; the pool outlives its storage."""
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


class CisternStorage(HiCacheStorage):
    """Called by SGLang's prefetch and backup threads. Whatever fails is a miss."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None):
        extra = dict(storage_config.extra_config or {})
        missing = [name for name in WANTED if not extra.get(name)]
        if missing:
            raise ValueError(f"cistern: the extra configuration has no {' and no '.join(missing)}, which SGLang's page hashes do not hold")
        c = storage_config
        ranks = [c.pp_rank, c.pp_size, c.attn_cp_rank, c.attn_cp_size, c.dcp_rank, c.dcp_size]
        if not c.is_mla_model:
            ranks += [c.tp_rank, c.tp_size]  # MLA pages are the same on every rank, and one of them writes.
        identity = dict(model=c.model_name, dtype=extra["kv_cache_dtype"], weights=extra["weights_id"], page_first=c.is_page_first_layout,
                        split=c.should_split_heads, lcm=c.tp_lcm_size, page=c.logical_page_size, ranks=ranks)
        space = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        deadline_ms = int(extra.get("deadline_ms", 2000))
        self._writes = c.is_storage_writer
        self._client = Client(extra.get("router"), transport=extra.get("transport", "auto"), tenant=extra.get("tenant", ""),
                              deadline_ms=deadline_ms, wait_for_router=False)
        self._store = KeyedStore(self._client, f"{FORMAT};{space}", deadline_ms=deadline_ms)
        self._counts = dict.fromkeys(("got_pages", "missed_pages", "set_pages", "refused_pages"), 0)

    # ------------------------------------------------ whole pages, in the host pool's memory
    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        return self._move(self._store.get, keys, host_indices, (PageResult.OK,), "got_pages", "missed_pages")

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        if not self._writes:
            return [True] * len(keys)
        return self._move(self._store.put, keys, host_indices, THERE, "set_pages", "refused_pages")

    def _move(self, move: Any, keys: list[str], host_indices: torch.Tensor, good: tuple[PageResult, ...], yes: str, no: str) -> list[bool]:
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        per_key = len(addresses) // len(keys) if keys else 0  # K and V apart, or all in one.
        if per_key * len(keys) != len(addresses):
            raise ValueError(f"cistern: {len(addresses)} memory ranges for {len(keys)} pages")
        names = [f"{key};{part}" for key in keys for part in range(per_key)]
        try:
            results = move(names, [view_of(a, n) for a, n in zip(addresses, sizes)])
        except Error as error:
            log.warning("cistern: %s", error)
            results = [PageResult.PEER_GONE] * len(names)
        right = [all(r in good for r in results[i * per_key:(i + 1) * per_key]) for i in range(len(keys))]
        self._counts[yes] += sum(right)
        self._counts[no] += len(right) - sum(right)
        return right

    # ------------------------------------------------ single values
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        target = target_location
        if target is None:
            size = self._store.size_of(f"{key};0")
            if not size:
                return None
            target = torch.empty(size, dtype=torch.uint8)
        return target if self._store.get([f"{key};0"], [bytes_of(target)]) == [PageResult.OK] else None

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[torch.Tensor | None]:
        return [self.get(key, None if target_locations is None else target_locations[i]) for i, key in enumerate(keys)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        source = value if value is not None else target_location
        if source is None:
            return False
        return not self._writes or self._store.put([f"{key};0"], [bytes_of(source)])[0] in THERE

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        sources = values if values is not None else target_locations
        return sources is not None and all([self.set(key, source) for key, source in zip(keys, sources)])

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        """Leading pages of which every range is there."""
        parts = self._parts()
        found = self._store.exists([f"{key};{part}" for key in keys for part in range(parts)])
        return found.index(False) // parts if False in found else len(keys)

    def _parts(self) -> int:
        """Ranges of a page, as the host pool has them; 1 without a pool."""
        if getattr(self, "mem_pool_host", None) is None:
            return 1
        if not hasattr(self, "_ranges"):
            page = getattr(self.mem_pool_host, "page_size", 1)
            self._ranges = len(self.mem_pool_host.get_page_buffer_meta(torch.arange(page))[0])
        return self._ranges

    def clear(self) -> None:
        """Pages are named by what they hold: there is nothing that clearing would have to take back."""

    def get_stats(self) -> dict[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        self._store.close()
        self._client.close()


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """A contiguous host tensor's memory, whatever its type."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"cistern: a contiguous tensor on the host is wanted, not {tuple(tensor.shape)} on {tensor.device}")
    return view_of(tensor.data_ptr(), tensor.numel() * tensor.element_size())
