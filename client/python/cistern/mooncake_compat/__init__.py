"""Mooncake's Python Store interface over cistern, so that its users can switch without new code.

    from cistern.mooncake_compat import MooncakeDistributedStore, ReplicateConfig

or, for code that says `from mooncake.store import ...`, by an explicit wish of whoever starts it:

    import cistern.mooncake_compat; cistern.mooncake_compat.install()
    python -m cistern.mooncake_compat SCRIPT ...

docs/guides/mooncake.md has what maps to what, and what differs.
"""
from .shim import install
from .store import MooncakeDistributedStore
from .values import BufferHandle, ErrorCode, ObjectDataType, ReplicateConfig, SoftPinAction

__all__ = ["BufferHandle", "ErrorCode", "MooncakeDistributedStore", "ObjectDataType", "ReplicateConfig", "SoftPinAction", "install"]
