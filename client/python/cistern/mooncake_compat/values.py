"""Codes and plain objects of Mooncake's interface."""
from __future__ import annotations

import ctypes
import enum
import re
from typing import Any

from .._errors import PageResult


class ErrorCode(enum.IntEnum):
    """Mooncake's numbers, those that occur here."""

    OK = 0
    INTERNAL_ERROR = -1
    NO_AVAILABLE_HANDLE = -200
    INVALID_PARAMS = -600
    OBJECT_NOT_FOUND = -704
    CHECKSUM_MISMATCH = -801
    RPC_FAIL = -900
    RPC_TIMEOUT = -901
    SERIALIZE_UNSUPPORTED = -1500


_CODES = {
    PageResult.OK: ErrorCode.OK, PageResult.EXISTS: ErrorCode.OK, PageResult.MISS: ErrorCode.OBJECT_NOT_FOUND,
    PageResult.CORRUPT: ErrorCode.CHECKSUM_MISMATCH, PageResult.NO_SPACE: ErrorCode.NO_AVAILABLE_HANDLE,
    PageResult.BUSY: ErrorCode.NO_AVAILABLE_HANDLE, PageResult.TOO_LARGE: ErrorCode.INVALID_PARAMS,
    PageResult.INVALID: ErrorCode.INVALID_PARAMS, PageResult.DEADLINE: ErrorCode.RPC_TIMEOUT,
}


def code_of(result: PageResult) -> int:
    return int(_CODES.get(result, ErrorCode.RPC_FAIL))


class SoftPinAction(enum.Enum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(enum.IntEnum):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class ReplicateConfig:
    """Taken, checked and, but for contradictions, without effect: one copy lives in the cluster, and eviction alone decides how long."""

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms: int | None = None
        self.with_hard_pin = False
        self.preferred_segments: list[str] = []
        self.preferred_nof_segments: list[str] = []
        self.preferred_segment = ""
        self.prefer_alloc_in_same_node = False
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids: list[str] | None = None

    @property
    def soft_pin_ttl_ms(self) -> int | None:
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value: int | None) -> None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
            raise TypeError(f"soft_pin_ttl_ms: {value!r} is neither None nor an unsigned 64-bit integer")
        self._soft_pin_ttl_ms = value

    def is_valid(self) -> bool:
        has_ttl = self._soft_pin_ttl_ms is not None
        return self.replica_num >= 1 and not (has_ttl and self.soft_pin_action is not SoftPinAction.ENABLE)

    def __str__(self) -> str:
        return f"ReplicateConfig: {{ {', '.join(f'{name.lstrip(chr(95))}: {value}' for name, value in vars(self).items())} }}"


class BufferHandle(bytearray):
    """A value in memory of its own."""

    def size(self) -> int:
        return len(self)

    def ptr(self) -> int:
        return ctypes.addressof((ctypes.c_ubyte * len(self)).from_buffer(self)) if self else 0


def memory_at(address: int, nbytes: int) -> memoryview:
    """Memory of the caller by address; it has to stay until the call has ended."""
    if not 0 <= nbytes <= ADDRESS_MAX or (nbytes and not 0 < address <= ADDRESS_MAX - nbytes):
        raise ValueError(f"buffer_ptr {address}, size {nbytes}: no memory")
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B") if nbytes else memoryview(b"")


def bytes_of(value: Any) -> memoryview:
    view = memoryview(value)
    return view.cast("B") if view.nbytes else memoryview(b"")


ADDRESS_MAX = (1 << 63) - 1  # Of user memory.
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KB": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "MIB": 1 << 20,
          "G": 1 << 30, "GB": 1 << 30, "GIB": 1 << 30, "T": 1 << 40, "TB": 1 << 40, "TIB": 1 << 40}


def size_of(text: Any) -> int:
    """Bytes: a number, or one with a unit, as in "16 MB"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(text).strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no size: a number of bytes is wanted, or one with a unit as in 16MB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
