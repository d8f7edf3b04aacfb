"""The plug-ins for LMCache and SGLang against the engines' own classes and a real cluster: engines_test.py BIN_DIR TESTS_DIR, by an
interpreter with torch and cistern; CISTERN_ENGINES names a folder with the packages lmcache and sglang."""
import ctypes, inspect, json, os, pathlib, re, select, sys, types, unittest

ENGINES = pathlib.Path(os.environ["CISTERN_ENGINES"])
sys.path += [str(ENGINES), str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration")]
# SGLang's package imports the whole server, which wants a GPU's libraries; its storage interface needs none of that.
for name in ("sglang", "sglang.srt"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(ENGINES.joinpath(*name.split(".")))]

import torch
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import native_plugin_l2_adapter as native_plugin
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

import cistern.lmcache
import cistern.sglang
import harness

GUIDES = pathlib.Path(__file__).resolve().parents[3] / "docs/guides"


class Guides(unittest.TestCase):
    def test_configurations_in_the_guides_are_taken(self):
        shown = json.loads(re.search(r"```json\n(.*?)```", (GUIDES / "lmcache.md").read_text(), re.S).group(1))
        config = native_plugin.NativePluginL2AdapterConfig.from_dict(shown)
        self.assertEqual((config.module_path, config.class_name), ("cistern.lmcache", "CisternClient"))
        self.assertLessEqual(set(config.adapter_params), set(inspect.signature(cistern.lmcache.CisternClient).parameters))
        shown = json.loads(re.search(r"extra-config '(\{.*?\})'", (GUIDES / "sglang.md").read_text(), re.S).group(1))
        self.assertEqual((shown["module_path"], shown["class_name"]), ("cistern.sglang", "CisternStorage"))
        self.assertTrue(all(shown.get(name) for name in cistern.sglang.WANTED))


class Object:
    """What LMCache's adapter asks of a memory object."""

    def __init__(self, data):
        self.data = (ctypes.c_ubyte * len(data)).from_buffer_copy(data)
        self.byte_array = memoryview(self.data).cast("B")

    def get_size(self):
        return len(self.data)


class LMCache(harness.Case):
    def setUp(self):
        super().setUp()
        self.up()
        config = native_plugin.NativePluginL2AdapterConfig.from_dict(dict(
            type="native_plugin", module_path="cistern.lmcache", class_name="CisternClient", adapter_params=dict(router=self.router, space="v1")))
        self.adapter = native_plugin._create_native_plugin_l2_adapter(config)
        self.addCleanup(self.adapter.close)

    def result(self, fd, query):
        def ready():
            select.select([fd], [], [], 0.1)
            return query()
        return harness.wait_for(ready, "a result of LMCache's adapter")

    def bits(self, bitmap, count):
        return [bool(bitmap.test(i)) for i in range(count)]

    def test_stores_looks_up_and_loads_through_lmcaches_adapter(self):
        keys = [ObjectKey(chunk_hash=bytes([i]) * 16, model_name="m", kv_rank=3, cache_salt="tenant" * (i % 2)) for i in range(4)]
        contents = [bytes([i + 1]) * 200_000 for i in range(4)]
        lookup = lambda: self.result(self.adapter.get_lookup_and_lock_event_fd(), lambda n=self.adapter.submit_lookup_and_lock_task(keys, {}): self.adapter.query_lookup_and_lock_result(n))
        self.assertEqual(self.bits(lookup(), 4), [False] * 4)
        number = self.adapter.submit_store_task(keys[:3], [Object(c) for c in contents[:3]])
        stored = self.result(self.adapter.get_store_event_fd(), lambda: self.adapter.pop_completed_store_tasks().get(number))
        self.assertTrue(stored.is_successful() if hasattr(stored, "is_successful") else stored, stored)
        self.assertEqual(self.bits(lookup(), 4), [True, True, True, False])
        objects = [Object(bytes(200_000)) for _ in range(4)]
        number = self.adapter.submit_load_task(keys, objects)
        loaded = self.result(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(number))
        self.assertEqual(self.bits(loaded, 4), [True, True, True, False])
        self.assertEqual([bytes(o.data) for o in objects[:3]], contents[:3])
        self.adapter.submit_unlock(keys)


class HostPool:
    """As SGLang's page-first host pools: one K and one V range a page."""
    page_size, page_bytes = 16, 32_768

    def __init__(self, pages):
        self.memory = torch.zeros(2, pages, self.page_bytes, dtype=torch.uint8)

    def get_page_buffer_meta(self, indices):
        addresses = [self.memory[plane, int(i) // self.page_size].data_ptr() for i in indices[::self.page_size] for plane in (0, 1)]
        return addresses, [self.page_bytes] * len(addresses)

    def indices(self, pages):
        return torch.cat([torch.arange(p * self.page_size, (p + 1) * self.page_size) for p in pages])


class SGLang(harness.Case):
    def setUp(self):
        super().setUp()
        self.up()

    def storage(self, pool, rank=0, mla=False, **changes):
        extra = dict(backend_name="cistern", module_path="cistern.sglang", class_name="CisternStorage", interface_v1=1, router=self.router,
                     kv_cache_dtype="bfloat16", weights_id="w1") | changes
        config = HiCacheStorageConfig(tp_rank=rank, tp_size=2, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=mla,
                                      enable_storage_metrics=False, is_page_first_layout=True, model_name="m",
                                      extra_config={k: v for k, v in extra.items() if v is not None})
        made = StorageBackendFactory.create_backend("dynamic", config, pool)
        made.register_mem_pool_host(pool)
        self.addCleanup(made.close)
        return made

    def test_pages_move_in_the_pools_own_memory(self):
        pool = HostPool(8)
        pool.memory[:] = torch.arange(pool.memory.numel()).view(pool.memory.shape) % 251
        want = pool.memory.clone()
        storage, keys = self.storage(pool), [f"page{i}" for i in range(4)]
        self.assertIsInstance(storage, HiCacheStorage)
        self.assertEqual(storage.batch_exists(keys), 0)
        self.assertEqual(storage.batch_set_v1(keys[:3], pool.indices([1, 2, 3])), [True] * 3)
        self.assertEqual((storage.batch_exists(keys), storage.exists(keys[2]), storage.exists(keys[3])), (3, True, False))
        pool.memory.zero_()
        self.assertEqual(storage.batch_get_v1(keys, pool.indices([5, 6, 7, 4])), [True, True, True, False])
        self.assertTrue(torch.equal(pool.memory[:, 5:8], want[:, 1:4]))
        self.assertFalse(pool.memory[:, :5].any())
        self.assertEqual(storage.get_stats()["missed_pages"], 1)

    def test_what_sglangs_hashes_lack_keeps_engines_apart(self):
        pool = HostPool(4)
        self.storage(pool).batch_set_v1(["k"], pool.indices([1]))
        self.assertEqual(self.storage(pool).batch_exists(["k"]), 1)
        for other in (dict(kv_cache_dtype="fp8_e4m3"), dict(weights_id="w2"), dict(rank=1)):
            self.assertEqual(self.storage(pool, **other).batch_exists(["k"]), 0, other)
        for missing in ("kv_cache_dtype", "weights_id"):
            with self.assertRaisesRegex(ValueError, missing):
                self.storage(pool, **{missing: None})
        # MLA pages are the same on every rank, and the first one writes them.
        second = self.storage(pool, rank=1, mla=True)
        self.assertEqual((second.batch_set_v1(["m"], pool.indices([1])), second.batch_exists(["m"])), ([True], 0))
        self.storage(pool, rank=0, mla=True).batch_set_v1(["m"], pool.indices([1]))
        self.assertEqual(second.batch_exists(["m"]), 1)

    def test_single_values(self):
        storage = self.storage(HostPool(2))
        storage.mem_pool_host = None
        tensor = torch.randn(100, 7).to(torch.bfloat16)
        self.assertIsNone(storage.get("v"))
        self.assertTrue(storage.set("v", tensor))
        self.assertTrue(torch.equal(storage.get("v").view(torch.bfloat16).view(100, 7), tensor))
        self.assertTrue(torch.equal(storage.get("v", torch.empty_like(tensor)), tensor))
        self.assertTrue(storage.batch_set(["w", "x"], [tensor, tensor]))
        self.assertEqual([t is not None for t in storage.batch_get(["w", "none", "x"])], [True, False, True])

    def test_dead_cluster_is_a_miss(self):
        pool = HostPool(2)
        storage = self.storage(pool, deadline_ms=500)
        for pid in self.node_pids.values():
            self.kill(pid)
        self.assertEqual(storage.batch_get_v1(["k"], pool.indices([1])), [False])
        self.assertEqual(storage.batch_set_v1(["k"], pool.indices([1])), [False])
        self.assertEqual(storage.batch_exists(["k"]), 0)


if __name__ == "__main__":
    harness.main()
