"""Tensors as values: a header with type and shape, then the elements. Needs torch; save and load also safetensors."""
from __future__ import annotations

import logging
import math
import os
import struct
from typing import Any, Sequence

from .values import ErrorCode, ReplicateConfig, memory_at

log = logging.getLogger("cistern.mooncake")
INVALID = int(ErrorCode.INVALID_PARAMS)
UNSUPPORTED = int(ErrorCode.SERIALIZE_UNSUPPORTED)
MISSING = int(ErrorCode.OBJECT_NOT_FOUND)
# The place in this list is the number in the header: only ever add at its end.
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
          "float8_e4m3fn", "float8_e5m2", "complex64", "complex128")
DIMENSIONS_MAX = 15
_HEADER = struct.Struct(f"<4sBBBB{DIMENSIONS_MAX}q")  # magic, version, type, dimensions, nothing; sizes
HEADER_BYTES = _HEADER.size
_MAGIC = b"CTEN"


def pack(tensor: Any) -> list[memoryview] | None:
    """Header and elements of a host tensor; None where its type or shape has no form."""
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.dim() > DIMENSIONS_MAX:
        return None
    sizes = list(tensor.shape) + [0] * (DIMENSIONS_MAX - tensor.dim())
    header = memoryview(_HEADER.pack(_MAGIC, 1, DTYPES.index(name), tensor.dim(), 0, *sizes))
    if tensor.numel() == 0:
        return [header]
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return [header, memoryview(flat.numpy()).cast("B")]


def unpack(memory: Any, exact: bool = True) -> Any:
    """The tensor whose elements lie in writable `memory`, not `exact`: at its beginning; None when that is no tensor."""
    import torch

    view = memoryview(memory)
    if len(view) < HEADER_BYTES:
        return None
    magic, version, code, dimensions, _, *sizes = _HEADER.unpack(view[:HEADER_BYTES])
    if magic != _MAGIC or version != 1 or code >= len(DTYPES) or dimensions > DIMENSIONS_MAX:
        return None
    dtype, shape = getattr(torch, DTYPES[code], None), sizes[:dimensions]
    if dtype is None or min(shape, default=0) < 0:
        return None
    end = HEADER_BYTES + math.prod(shape) * dtype.itemsize
    if end > len(view) or (exact and end != len(view)):
        return None
    if end == HEADER_BYTES:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(view[HEADER_BYTES:end], dtype=torch.uint8).view(dtype).reshape(shape)


def shard_key(key: str, rank: int) -> str:
    return f"{key}_tp_{rank}"


def _shards(tensor: Any, tp_size: int, split_dim: int) -> list[Any] | None:
    if not 0 <= split_dim < tensor.dim() or tensor.shape[split_dim] % tp_size:
        return None
    return list(tensor.chunk(tp_size, split_dim))


class TensorForms:
    _objects: Any

    # ------------------------------------------------ whole tensors
    def put_tensor(self, key: str, tensor: Any) -> int:
        return self.batch_pub_tensor([key], [tensor])[0]

    def pub_tensor(self, key: str, tensor: Any, config: ReplicateConfig | None = None) -> int:
        return self.batch_pub_tensor([key], [tensor], config)[0]

    def batch_put_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> list[int]:
        return self.batch_pub_tensor(keys, tensors_list)

    def batch_pub_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any], config: ReplicateConfig | None = None) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, False)

    def upsert_tensor(self, key: str, tensor: Any) -> int:
        return self.batch_upsert_pub_tensor([key], [tensor])[0]

    def upsert_pub_tensor(self, key: str, tensor: Any, config: ReplicateConfig | None = None) -> int:
        return self.batch_upsert_pub_tensor([key], [tensor], config)[0]

    def batch_upsert_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any]) -> list[int]:
        return self.batch_upsert_pub_tensor(keys, tensors_list)

    def batch_upsert_pub_tensor(self, keys: Sequence[str], tensors_list: Sequence[Any], config: ReplicateConfig | None = None) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, True)

    def get_tensor(self, key: str) -> Any:
        return self.batch_get_tensor([key])[0]

    def batch_get_tensor(self, keys: Sequence[str]) -> list[Any]:
        if self._objects is None:
            return [None] * len(keys)
        return [None if found is None else unpack(found) for found in self._take(keys)]

    # ------------------------------------------------ in memory of the caller: header, then elements
    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> Any:
        return self.batch_get_tensor_into([key], [buffer_ptr], [size])[0]

    def batch_get_tensor_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[Any]:
        codes = self.batch_get_into(keys, buffer_ptrs, sizes)
        return [unpack(memory_at(pointer, code)) if code > 0 else None for code, pointer in zip(codes, buffer_ptrs)]

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self.batch_put_tensor_from([key], [buffer_ptr], [size])[0]

    def batch_put_tensor_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        return self._put_tensors_from(keys, buffer_ptrs, sizes, self.batch_put_from)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self.batch_upsert_tensor_from([key], [buffer_ptr], [size])[0]

    def batch_upsert_tensor_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        return self._put_tensors_from(keys, buffer_ptrs, sizes, self.batch_upsert_from)

    # ------------------------------------------------ cut for tensor-parallel ranks, one key each
    def put_tensor_with_tp(self, key: str, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int:
        return self.pub_tensor_with_tp(key, tensor, None, tp_rank, tp_size, split_dim)

    def pub_tensor_with_tp(self, key: str, tensor: Any, config: ReplicateConfig | None = None, tp_rank: int = 0, tp_size: int = 1,
                           split_dim: int = 0) -> int:
        if tp_size <= 1:
            return self.pub_tensor(key, tensor, config)
        shards = _shards(tensor, tp_size, split_dim)
        if shards is None:
            return INVALID
        codes = self.batch_pub_tensor([shard_key(key, rank) for rank in range(tp_size)], shards, config)
        return next((code for code in codes if code), 0)

    def batch_put_tensor_with_tp(self, base_keys: Sequence[str], tensors_list: Sequence[Any], tp_rank: int = 0, tp_size: int = 1,
                                 split_dim: int = 0) -> list[int]:
        return self.batch_pub_tensor_with_tp(base_keys, tensors_list, None, tp_rank, tp_size, split_dim)

    def batch_pub_tensor_with_tp(self, base_keys: Sequence[str], tensors_list: Sequence[Any], config: ReplicateConfig | None = None,
                                 tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> list[int]:
        if len(base_keys) != len(tensors_list):
            return [INVALID] * len(base_keys)
        return [self.pub_tensor_with_tp(k, t, config, tp_rank, tp_size, split_dim) for k, t in zip(base_keys, tensors_list)]

    def put_tensor_with_tp_from(self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int:
        """The whole tensor lies in the buffer; the shards of all ranks are put."""
        return self.batch_put_tensor_with_tp_from([key], [buffer_ptr], [size], tp_rank, tp_size, split_dim)[0]

    def batch_put_tensor_with_tp_from(self, base_keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int], tp_rank: int = 0,
                                      tp_size: int = 1, split_dim: int = 0) -> list[int]:
        if not len(base_keys) == len(buffer_ptrs) == len(sizes) or not all(buffer_ptrs):
            return [INVALID] * len(base_keys)
        tensors = self._tensors_at(buffer_ptrs, sizes)
        if tensors is None:
            return [INVALID] * len(base_keys)
        return self.batch_pub_tensor_with_tp(base_keys, tensors, None, tp_rank, tp_size, split_dim)

    def get_tensor_with_tp(self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        return self.get_tensor(key if tp_size <= 1 else shard_key(key, tp_rank))

    def batch_get_tensor_with_tp(self, base_keys: Sequence[str], tp_rank: int = 0, tp_size: int = 1) -> list[Any]:
        return self.batch_get_tensor([k if tp_size <= 1 else shard_key(k, tp_rank) for k in base_keys])

    def get_tensor_with_tp_into(self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        return self.get_tensor_into(key if tp_size <= 1 else shard_key(key, tp_rank), buffer_ptr, size)

    def batch_get_tensor_with_tp_into(self, base_keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int], tp_rank: int = 0,
                                      tp_size: int = 1) -> list[Any]:
        return self.batch_get_tensor_into([k if tp_size <= 1 else shard_key(k, tp_rank) for k in base_keys], buffer_ptrs, sizes)

    # ------------------------------------------------ files
    def save_tensor_to_safetensor(self, key: str, file_name: str | None = None) -> int:
        from safetensors.torch import save_file

        tensor = self.get_tensor(key)
        if tensor is None:
            return MISSING
        try:
            save_file({key: tensor}, file_name or key)
        except OSError as error:
            log.error("cistern: save_tensor_to_safetensor: %s", error)
            return INVALID
        return 0

    def load_tensor_from_safetensor(self, key: str | None = None, file_name: str | None = None) -> Any:
        """The tensor, stored again; None when there is none in the file."""
        from safetensors.torch import load_file

        if file_name is None or not os.path.exists(file_name):
            log.error("cistern: load_tensor_from_safetensor: there is no %s", file_name)
            return None
        tensors = load_file(file_name)
        if not tensors:
            return None
        if key is not None and key not in tensors:
            log.warning("cistern: %s has no tensor %s; the first one is taken", file_name, key)
        tensor = tensors.get(key, next(iter(tensors.values())))
        return tensor if self.put_tensor(key if key is not None else file_name, tensor) == 0 else None

    # ------------------------------------------------ inside
    def _put_tensors(self, keys: Sequence[str], tensors: Sequence[Any], config: ReplicateConfig | None, replace: bool) -> list[int]:
        if self._objects is None or len(keys) != len(tensors):
            return [INVALID] * len(keys)
        packed = [pack(tensor) for tensor in tensors]
        good = [i for i, parts in enumerate(packed) if parts is not None]
        codes = dict(zip(good, self._put([keys[i] for i in good], [packed[i] for i in good], config, replace=replace)))
        return [codes.get(i, UNSUPPORTED) for i in range(len(keys))]

    def _put_tensors_from(self, keys: Sequence[str], pointers: Sequence[int], sizes: Sequence[int], put: Any) -> list[int]:
        if not len(keys) == len(pointers) == len(sizes) or not all(pointers):
            return [INVALID] * len(keys)
        tensors = self._tensors_at(pointers, sizes)
        if tensors is None:
            return [INVALID] * len(keys)
        return put(keys, pointers, [HEADER_BYTES + tensor.numel() * tensor.element_size() for tensor in tensors])

    @staticmethod
    def _tensors_at(pointers: Sequence[int], sizes: Sequence[int]) -> list[Any] | None:
        """Callers reckon sizes with Mooncake's header, which is longer: what stands behind a tensor is not its own."""
        tensors = [unpack(memory_at(p, n), exact=False) for p, n in zip(pointers, sizes)]
        return None if any(tensor is None for tensor in tensors) else tensors
