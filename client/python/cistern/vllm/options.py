"""kv_connector_extra_config of CisternConnector. Unknown keys are refused: a misspelt one would be silently ignored."""
from __future__ import annotations

import dataclasses
import os
from typing import Any

STAGING_BYTES_DEFAULT = 256 << 20


@dataclasses.dataclass(frozen=True)
class Options:
    routers: str = ""  # HOST:PORT; default CISTERN_ROUTER, then 127.0.0.1:7400.
    load_async: bool = True  # Load between steps, the request waits meanwhile; False: before the step that needs it.
    layerwise: bool = False  # With load_async false: the model begins while pages of its later layers are on their way.
    layer_ranges: int = 0  # Ranges of layers that a block is stored in, at least; engines find each other's pages only with as many.
    block_tokens: int = 0  # Tokens a cistern block; 0: the engine's block size, whose pages then move without a copy.
    lookup_deadline_ms: int = 200  # What a lookup may cost the scheduler at most, for instance when a node hangs.
    load_deadline_ms: int = 2000
    store_deadline_ms: int = 5000
    connect_deadline_ms: int = 3000  # At start; a cluster that comes later is found by itself.
    lease_ttl_ms: int = 10000
    staging_bytes: int = STAGING_BYTES_DEFAULT  # Copies of pages on their way out; saves beyond are dropped and counted.
    share_bytes: int = 64 << 20  # Shared memory in which tensor-parallel ranks of a host hand on what they hold alike; 0: each pulls its own copy.
    transport: str = "auto"
    tenant: str = ""
    weights_id: str = ""  # Names the weights for all who share them; default: a digest of the files.

    @classmethod
    def from_extra(cls, extra: dict[str, Any]) -> Options:
        fields = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in extra.items():
            if name not in fields:
                raise ValueError(f"kv_connector_extra_config: there is no {name!r}; there are {', '.join(fields)}")
            want = type(fields[name].default)
            if type(value) is not want or (want is int and value < 0):
                raise ValueError(f"kv_connector_extra_config: {name} is {value!r}, wanted: {want.__name__}, not negative")
            values[name] = value
        values["routers"] = values.get("routers") or os.environ.get("CISTERN_ROUTER") or "127.0.0.1:7400"
        return cls(**values)
