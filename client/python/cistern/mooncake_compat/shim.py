"""Makes `mooncake.store` importable, where that was asked for."""
from __future__ import annotations

import sys
import types
from typing import Sequence


def install(*, segments: bool = False, path: Sequence[str] = ()) -> None:
    """From now on `mooncake.store` is this package, in this process. Refused when the real one has been imported.

    `segments`: what a store with a segment of its own has put in one copy goes when it closes, as with Mooncake when it is the
    only one; else values stay. `path`: folders in which other modules named `mooncake.` are looked for.
    """
    from . import store, tensors, values

    there = sys.modules.get("mooncake")
    if there is not None and not getattr(there, "__cistern__", False):
        raise RuntimeError("cistern: mooncake has been imported already; install the shim before it")
    package, module = types.ModuleType("mooncake"), types.ModuleType("mooncake.store")
    package.__cistern__ = True
    package.__path__ = list(path)
    package.store = module
    for name in ("BufferHandle", "ObjectDataType", "ReplicateConfig", "SoftPinAction"):
        setattr(module, name, getattr(values, name))
    module._tensor_metadata_size = lambda: tensors.HEADER_BYTES  # Mooncake's other modules reckon buffers with it.
    module.MooncakeDistributedStore = store.MooncakeDistributedStore
    store.MooncakeDistributedStore._segments = segments
    sys.modules["mooncake"], sys.modules["mooncake.store"] = package, module
