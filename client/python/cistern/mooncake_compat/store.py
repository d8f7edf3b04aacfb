"""MooncakeDistributedStore over a cluster that runs already: names, arguments and numbers are Mooncake's."""
from __future__ import annotations

import functools
import inspect
import logging
import random
import re
import threading
from typing import Any, Callable, Sequence

from .._client import Client
from .._errors import Error, PageResult
from .objects import ObjectStore
from .ranges import RangeForms
from .tensors import TensorForms
from .values import BufferHandle, ErrorCode, ReplicateConfig, bytes_of, code_of, memory_at, size_of

log = logging.getLogger("cistern.mooncake")
SPACE = "mooncake/1"  # Another value: nothing stored before is found.
KEYS_KNOWN_MAX = 1 << 20  # Of one store, for remove_all and remove_by_regex.
WINDOW_BYTES_MAX = 512 << 20
DEADLINE_MS = 5000
PORTS = (12300, 14300)  # Where Mooncake takes its own from.
STORED = (PageResult.OK, PageResult.EXISTS)


def _opened(otherwise: Callable[..., Any]) -> Callable[[Any], Any]:
    """A call that gives otherwise(...) on a store that is not set up, or closed meanwhile, and for arguments that are none."""
    def wrap(call: Any) -> Any:
        form = inspect.signature(call)

        @functools.wraps(call)
        def checked(self: Any, *args: Any, **options: Any) -> Any:
            if self._objects is None:
                log.error("cistern: %s on a store that is not set up", call.__name__)
                return otherwise(*args, **options)
            try:
                return call(self, *args, **options)
            except (Error, TypeError, ValueError, OverflowError, AttributeError) as error:
                form.bind(self, *args, **options)  # Raises: a call that this method has not.
                log.error("cistern: %s: %s: %s", call.__name__, type(error).__name__, error)
                return otherwise(*args, **options)
        return checked
    return wrap


def _invalid(*args: Any, **options: Any) -> int:
    return int(ErrorCode.INVALID_PARAMS)


def _invalid_each(keys: Any = (), *args: Any, **options: Any) -> list[int]:
    return [int(ErrorCode.INVALID_PARAMS)] * len(keys)


class MooncakeDistributedStore(TensorForms, RangeForms):
    """Any thread. A miss is Mooncake's value for it (b"", None, 0 or -704), never an exception."""

    _segments = False  # Set by install().

    def __init__(self) -> None:
        self._client: Client | None = None
        self._objects: ObjectStore | None = None
        self._lock = threading.Lock()  # Guards what follows.
        self._known: dict[str, bool] = {}  # Keys seen; True: put by this store, in one copy.
        self._buffers: dict[int, int] = {}
        self._owns_segment = False
        self._hostname = ""
        self._takes_bytes = True

    # ------------------------------------------------ beginning and end
    def setup(self, local_hostname: Any = None, metadata_server: str = "", global_segment_size: Any = 16 << 20,
              local_buffer_size: Any = 16 << 20, protocol: str = "tcp", rdma_devices: str = "", master_server_addr: str = "127.0.0.1:50051",
              engine: Any = None, enable_ssd_offload: bool = False, ssd_offload_path: str = "", tenant_id: str = "default",
              enable_client_http_server: bool = False, client_http_port: int = 9300, *, config: dict[str, Any] | None = None) -> int:
        """0, or a code. Connects to the router at master_server_addr; the cluster runs already and brings the memory. A dictionary
        as the first or only argument has these names as keys, and deadline_ms."""
        values = dict(local_hostname=local_hostname, global_segment_size=global_segment_size, local_buffer_size=local_buffer_size,
                      master_server_addr=master_server_addr, tenant_id=tenant_id, deadline_ms=DEADLINE_MS)
        values.update(config or (local_hostname if isinstance(local_hostname, dict) else {}))
        self.close()
        try:
            segment, local = size_of(values["global_segment_size"]), size_of(values["local_buffer_size"])
            host = str(values["local_hostname"] or "localhost")
            deadline_ms = int(values["deadline_ms"])
            if not 0 <= deadline_ms < 1 << 32:
                raise ValueError(f"deadline_ms: {deadline_ms} is not in [0, 2^32)")
            client = Client(str(values["master_server_addr"]), deadline_ms=deadline_ms, wait_for_router=False,
                            window_bytes=max(1 << 20, min(local, WINDOW_BYTES_MAX)))
        except (Error, ValueError, TypeError, OverflowError) as error:
            log.error("cistern: setup: %s", error)
            return int(ErrorCode.RPC_FAIL if isinstance(error, Error) and not isinstance(error, ValueError) else ErrorCode.INVALID_PARAMS)
        self._hostname = host if ":" in host else f"{host}:{random.randint(*PORTS)}"
        self._owns_segment, self._takes_bytes = segment > 0, local > 0
        self._client, self._objects = client, ObjectStore(client, f"{SPACE};{values['tenant_id']}", deadline_ms=deadline_ms)
        return 0

    def close(self) -> int:
        objects, client = self._objects, self._client
        if objects is None or client is None:
            return 0
        if self._segments and self._owns_segment:
            with self._lock:
                mine = [key for key, own in self._known.items() if own]
            objects.remove(mine)
        self._objects = self._client = None
        objects.close()
        client.close()
        with self._lock:
            self._known.clear()
            self._buffers.clear()
        return 0

    def get_hostname(self) -> str:
        """The name given to setup, with a port; nothing listens there."""
        return self._hostname

    def health_check(self) -> int:
        """0; 1 where the store is not set up, 2 where the cluster does not answer."""
        if self._objects is None:
            return 1
        result, _ = self._objects.heads([f"\0health {random.random()}"])[0]
        return 0 if result in (PageResult.OK, PageResult.MISS) else 2

    # ------------------------------------------------ putting
    @_opened(_invalid)
    def put(self, key: str, value: Any, config: ReplicateConfig | None = None) -> int:
        return self._put([key], [[bytes_of(value)]], config, copied=True)[0]

    @_opened(_invalid)
    def put_parts(self, key: str, *parts: Any, config: ReplicateConfig | None = None) -> int:
        return self._put([key], [[bytes_of(part) for part in parts]], config, copied=True)[0]

    @_opened(_invalid)
    def put_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig | None = None) -> int:
        return _worst(self._put(keys, [[bytes_of(value)] for value in values], config, copied=True))

    @_opened(_invalid)
    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    @_opened(_invalid_each)
    def batch_put_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int],
                       config: ReplicateConfig | None = None) -> list[int]:
        return self._put_from(keys, [[p] for p in buffer_ptrs], [[n] for n in sizes], config)

    @_opened(_invalid_each)
    def batch_put_from_multi_buffers(self, keys: Sequence[str], all_buffer_ptrs: Sequence[Sequence[int]], all_sizes: Sequence[Sequence[int]],
                                     config: ReplicateConfig | None = None) -> list[int]:
        return self._put_from(keys, all_buffer_ptrs, all_sizes, config)

    @_opened(_invalid)
    def upsert(self, key: str, value: Any, config: ReplicateConfig | None = None) -> int:
        return self._put([key], [[bytes_of(value)]], config, copied=True, replace=True)[0]

    @_opened(_invalid)
    def upsert_parts(self, key: str, *parts: Any, config: ReplicateConfig | None = None) -> int:
        return self._put([key], [[bytes_of(part) for part in parts]], config, copied=True, replace=True)[0]

    @_opened(_invalid)
    def upsert_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig | None = None) -> int:
        return _worst(self._put(keys, [[bytes_of(value)] for value in values], config, copied=True, replace=True))

    @_opened(_invalid)
    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        return self.batch_upsert_from([key], [buffer_ptr], [size], config)[0]

    @_opened(_invalid_each)
    def batch_upsert_from(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int],
                          config: ReplicateConfig | None = None) -> list[int]:
        return self._put_from(keys, [[p] for p in buffer_ptrs], [[n] for n in sizes], config, replace=True)

    # ------------------------------------------------ getting
    @_opened(lambda key: b"")
    def get(self, key: str) -> bytes:
        found = self._take([key])[0]
        return b"" if found is None else bytes(found)

    @_opened(lambda keys: [b""] * len(keys))
    def get_batch(self, keys: Sequence[str]) -> list[bytes]:
        return [b"" if found is None else bytes(found) for found in self._take(keys)]

    @_opened(lambda key: None)
    def get_buffer(self, key: str) -> BufferHandle | None:
        return self._take([key])[0]

    @_opened(lambda keys: [None] * len(keys))
    def batch_get_buffer(self, keys: Sequence[str]) -> list[BufferHandle | None]:
        return self._take(keys)

    @_opened(_invalid)
    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Bytes read, or a code."""
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    @_opened(_invalid_each)
    def batch_get_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        return self._get_into(keys, [[p] for p in buffer_ptrs], [[n] for n in sizes])

    @_opened(_invalid_each)
    def batch_get_into_multi_buffers(self, keys: Sequence[str], all_buffer_ptrs: Sequence[Sequence[int]], all_sizes: Sequence[Sequence[int]],
                                     prefer_alloc_in_same_node: bool = False) -> list[int]:
        return self._get_into(keys, all_buffer_ptrs, all_sizes)

    @_opened(_invalid)
    def get_size(self, key: str) -> int:
        result, head = self._objects.heads([key])[0]
        return head.size if head is not None else code_of(result)

    @_opened(lambda key: -1)
    def is_exist(self, key: str) -> int:
        """1: all of it is there; 0: not; -1: nobody could say."""
        return self.batch_is_exist([key])[0]

    @_opened(lambda keys: [-1] * len(keys))
    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        found = self._objects.exists(keys)
        self._see([key for key, result in zip(keys, found) if result == PageResult.OK])
        return [1 if r == PageResult.OK else 0 if r in (PageResult.MISS, PageResult.CORRUPT) else -1 for r in found]

    # ------------------------------------------------ removing
    @_opened(_invalid)
    def remove(self, key: str, force: bool = False) -> int:
        return self.batch_remove([key], force)[0]

    @_opened(_invalid_each)
    def batch_remove(self, keys: Sequence[str], force: bool = False) -> list[int]:
        results = self._objects.remove(keys)
        with self._lock:
            for key, result in zip(keys, results):
                if result in (PageResult.OK, PageResult.MISS):
                    self._known.pop(key, None)
        return [code_of(result) for result in results]

    @_opened(_invalid)
    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """How many of the keys that this store has put or seen matched and went, or a code."""
        try:
            pattern = re.compile(regex_pattern)
        except re.error as error:
            log.error("cistern: remove_by_regex: %s", error)
            return int(ErrorCode.INVALID_PARAMS)
        with self._lock:
            keys = [key for key in self._known if pattern.search(key)]
        return sum(code == 0 for code in self.batch_remove(keys))

    @_opened(_invalid)
    def remove_all(self, force: bool = False) -> int:
        return self.remove_by_regex("")

    # ------------------------------------------------ memory
    @_opened(_invalid)
    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Only its size is remembered, for get_into_ranges: calls take any memory."""
        if not buffer_ptr or size <= 0:
            return int(ErrorCode.INVALID_PARAMS)
        with self._lock:
            self._buffers[buffer_ptr] = size
        return 0

    @_opened(_invalid)
    def unregister_buffer(self, buffer_ptr: int) -> int:
        with self._lock:
            return 0 if self._buffers.pop(buffer_ptr, None) is not None else int(ErrorCode.INVALID_PARAMS)

    # ------------------------------------------------ inside
    def _see(self, keys: Sequence[str], own: bool = False) -> None:
        with self._lock:
            for key in keys:
                if len(self._known) < KEYS_KNOWN_MAX or key in self._known:
                    self._known[key] = own or self._known.get(key, False)

    def _put(self, keys: Sequence[str], values: Sequence[list[memoryview]], config: ReplicateConfig | None, *, copied: bool = False,
             replace: bool = False) -> list[int]:
        config = config or ReplicateConfig()
        if len(keys) != len(values) or not config.is_valid() or not all(keys):
            return _invalid_each(keys)
        if copied and not self._takes_bytes and any(sum(map(len, value)) for value in values):
            return [int(ErrorCode.NO_AVAILABLE_HANDLE)] * len(keys)  # As there: no local buffer, no copy to send from.
        results = self._objects.put(keys, values, replace=replace)
        self._see([key for key, result in zip(keys, results) if result in STORED], config.replica_num == 1)
        return [code_of(result) for result in results]

    def _put_from(self, keys: Sequence[str], pointers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]],
                  config: ReplicateConfig | None, replace: bool = False) -> list[int]:
        values = _memory(keys, pointers, sizes)
        return _invalid_each(keys) if values is None else self._put(keys, values, config, replace=replace)

    def _take(self, keys: Sequence[str]) -> list[BufferHandle | None]:
        buffers: list[BufferHandle | None] = [None] * len(keys)

        def memory_of(i: int, size: int) -> list[memoryview]:
            buffers[i] = BufferHandle(size)
            return [memoryview(buffers[i])]
        results = self._objects.get(keys, memory_of)
        self._see([key for key, (result, _) in zip(keys, results) if result == PageResult.OK])
        return [buffer if result == PageResult.OK else None for buffer, (result, _) in zip(buffers, results)]

    def _get_into(self, keys: Sequence[str], pointers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[int]:
        memory = _memory(keys, pointers, sizes)
        if memory is None:
            return _invalid_each(keys)
        results = self._objects.get(keys, lambda i, size: memory[i])
        return [size if result == PageResult.OK else code_of(result) for result, size in results]


def _memory(keys: Sequence[str], pointers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[list[memoryview]] | None:
    if not len(keys) == len(pointers) == len(sizes) or any(len(p) != len(n) for p, n in zip(pointers, sizes)):
        return None
    try:
        return [[memory_at(p, n) for p, n in zip(ps, ns)] for ps, ns in zip(pointers, sizes)]
    except (ValueError, TypeError, OverflowError):
        return None


def _worst(codes: list[int]) -> int:
    return next((code for code in codes if code), 0)
