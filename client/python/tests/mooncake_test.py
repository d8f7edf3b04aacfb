"""Mooncake's Store interface over a real cluster: mooncake_test.py BIN_DIR TESTS_DIR, by an interpreter that has cistern; tensors are
tested where it has torch."""
import ctypes, importlib.util, pathlib, random, re, subprocess, sys, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern
from cistern.keyed import PART_BYTES_MAX
from cistern.mooncake_compat import ErrorCode, MooncakeDistributedStore, ReplicateConfig, SoftPinAction, objects, shim, tensors, values

TORCH = importlib.util.find_spec("torch") is not None
STAMP_BYTES = 26
MISSING, INVALID, NO_ROOM = int(ErrorCode.OBJECT_NOT_FOUND), int(ErrorCode.INVALID_PARAMS), int(ErrorCode.NO_AVAILABLE_HANDLE)


def value(size, seed=0):
    return random.Random(seed << 32 | size).randbytes(size)


class Plain(unittest.TestCase):
    """What needs no cluster."""

    def test_sizes_are_read_as_there(self):
        for text, want in ((16, 16), ("16", 16), ("16MB", 16 << 20), ("16 mb", 16 << 20), ("1.5 KiB", 1536), ("2G", 2 << 30), ("0", 0)):
            self.assertEqual(values.size_of(text), want, text)
        for text in ("50%", "", "MB", "-1", "1 parsec"):
            with self.assertRaises(ValueError):
                values.size_of(text)

    def test_replicate_config(self):
        config = ReplicateConfig()
        self.assertEqual((config.replica_num, config.soft_pin_ttl_ms, config.soft_pin_action), (1, None, SoftPinAction.PRESERVE))
        config.soft_pin_ttl_ms = 5
        self.assertFalse(config.is_valid())
        config.soft_pin_action = SoftPinAction.ENABLE
        self.assertTrue(config.is_valid())
        for wrong in (-1, 1 << 64, "5", True):
            with self.assertRaises(TypeError):
                config.soft_pin_ttl_ms = wrong
        config.replica_num = 0
        self.assertFalse(config.is_valid())

    def test_parts_hold_the_value_and_waste_little(self):
        for size in [1, 63, 64, 65, 4096, 100_000, PART_BYTES_MAX - 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 16 * PART_BYTES_MAX, 17 * PART_BYTES_MAX + 1,
                     objects.VALUE_BYTES_MAX] + [random.Random(7).randrange(1, 1 << 28) for _ in range(500)]:
            blocks, each = objects.part_bytes_of(size)
            self.assertLessEqual(each, PART_BYTES_MAX)
            self.assertGreaterEqual(blocks * each, size)
            self.assertGreater(size, (blocks - 1) * each)  # No page that holds nothing of it.
            if size > 2048:
                self.assertLessEqual(blocks * each, size * 17 // 16 + 64 * blocks)
        layouts = {objects.part_bytes_of(size)[1] for size in range(1, 1 << 26, 977)}
        self.assertLess(len(layouts), 400)

    def test_pieces_are_cut_into_pages(self):
        data = value(1000)
        pieces = [memoryview(data)[a:b] for a, b in ((0, 1), (1, 1), (1, 300), (300, 1000))]
        for part, blocks in ((1000, 1), (300, 4), (256, 4), (999, 2)):
            pages = objects.cut(pieces, part, blocks, bytes)
            self.assertEqual([sum(map(len, page)) for page in pages], [part] * blocks)
            self.assertEqual(b"".join(b"".join(page) for page in pages)[:1000], data)

    def test_a_store_that_is_not_set_up_says_so(self):
        store = MooncakeDistributedStore()
        self.assertEqual((store.put("k", b"v"), store.get("k"), store.get_buffer("k"), store.is_exist("k")), (INVALID, b"", None, -1))
        self.assertEqual((store.remove("k"), store.remove_all(), store.health_check(), store.close()), (INVALID, INVALID, 1, 0))
        self.assertEqual(store.get_into_ranges([1], [["k"]], [[[0]]], [[[0]]], [[[1]]]), [[[INVALID]]])

    def test_setup_without_a_cluster_gives_a_code(self):
        nowhere = f"127.0.0.1:{harness.free_port()}"
        self.assertEqual(MooncakeDistributedStore().setup("localhost", "P2PHANDSHAKE", 1 << 20, 1 << 20, "tcp", "", nowhere), int(ErrorCode.RPC_FAIL))

    def test_shim_is_there_only_when_asked_for(self):
        self.assertNotIn("mooncake", sys.modules)
        program = "from mooncake.store import MooncakeDistributedStore as S, ReplicateConfig, _tensor_metadata_size as n; print(S.__module__, n())"
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertIn("ModuleNotFoundError", found.stderr)
        found = subprocess.run([sys.executable, "-c", "import cistern.mooncake_compat as c; c.install(); c.install(); " + program], capture_output=True, text=True)
        self.assertEqual(found.stdout.strip(), f"cistern.mooncake_compat.store {tensors.HEADER_BYTES}", found.stderr)
        found = subprocess.run([sys.executable, "-m", "cistern.mooncake_compat"], capture_output=True, text=True)
        self.assertEqual((found.returncode, found.stderr.startswith("usage:")), (2, True))
        taken = type(sys)("mooncake")
        sys.modules["mooncake"] = taken
        self.addCleanup(sys.modules.pop, "mooncake")
        with self.assertRaisesRegex(RuntimeError, "imported already"):
            shim.install()


class Stores(harness.Case):
    nodes, ram = 2, "256M"
    transport = ()

    def setUp(self):
        super().setUp()
        self.up(*self.transport)
        self.store = self.open()

    def open(self, **changes):
        store = MooncakeDistributedStore()
        config = dict(local_hostname="localhost", metadata_server="P2PHANDSHAKE", global_segment_size="64MB", local_buffer_size="16MB", protocol="tcp",
                      rdma_devices="", master_server_addr=self.router) | changes
        self.assertEqual(store.setup(config), 0)
        self.addCleanup(store.close)
        return store

    def memory(self, size):
        memory = (ctypes.c_ubyte * size)()
        self.assertEqual(self.store.register_buffer(ctypes.addressof(memory), size), 0)
        return memory, ctypes.addressof(memory)


class Basics(Stores):
    def test_values_of_every_size_come_back_to_another_store(self):
        sizes = [0, 1, 63, 64, 65, 4095, 4096, 70_001, PART_BYTES_MAX - 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX + 5]
        other = self.open()
        for size in sizes:
            self.assertEqual(self.store.put(f"k{size}", value(size)), 0, size)
        self.assertEqual(other.batch_is_exist([f"k{size}" for size in sizes] + ["no"]), [1] * len(sizes) + [0])
        self.assertEqual([other.get_size(f"k{size}") for size in sizes], sizes)
        self.assertEqual([other.get(f"k{size}") for size in sizes], [value(size) for size in sizes])
        self.assertEqual([bytes(b) for b in other.batch_get_buffer([f"k{size}" for size in sizes])], [value(size) for size in sizes])
        self.assertEqual((other.get("no"), other.get_size("no"), other.get_buffer("no"), other.is_exist("no")), (b"", MISSING, None, 0))

    def test_F20_the_first_put_of_a_key_stays(self):
        self.assertEqual((self.store.put("k", b"first"), self.store.put("k", b"second")), (0, 0))
        self.assertEqual(self.store.get("k"), b"first")
        self.assertEqual(self.store.put_batch(["a", "a", "b"], [b"one", b"two", b"three"]), 0)
        self.assertEqual(self.store.get_batch(["a", "b"]), [b"one", b"three"])

    def test_upsert_replaces(self):
        for i, size in enumerate((10, 5_000_000, 0, 77)):
            self.assertEqual(self.store.upsert("k", value(size, i)), 0)
            self.assertEqual((self.store.get("k"), self.store.get_size("k")), (value(size, i), size))
        self.assertEqual(self.store.upsert_batch(["k", "l"], [b"1", b"2"]), 0)
        self.assertEqual(self.store.get_batch(["k", "l"]), [b"1", b"2"])
        self.assertEqual(self.store.upsert_parts("k", b"ab", b"", b"c"), 0)
        self.assertEqual(self.store.get("k"), b"abc")

    def test_what_was_removed_is_gone_and_can_be_put_anew(self):
        self.assertEqual(self.store.remove("k"), MISSING)
        for i in range(5):
            self.assertEqual(self.store.put("k", value(9_000_000, i)), 0)
            self.assertEqual(self.store.get("k"), value(9_000_000, i))
            self.assertEqual(self.store.remove("k"), 0)
            self.assertEqual((self.store.is_exist("k"), self.store.get("k"), self.store.remove("k")), (0, b"", MISSING))
        self.store.put_batch(["a", "b"], [b"1", b"2"])
        self.assertEqual(self.store.batch_remove(["a", "c", "b"]), [0, MISSING, 0])

    def test_removal_frees_the_memory_of_the_value(self):
        used = lambda: sum(tier["used_bytes"] for node in self.cistern("status")["nodes"] for tier in node["tiers"])
        before = used()
        self.store.put("k", value(20_000_000))
        self.assertGreaterEqual(used() - before, 20_000_000)
        self.store.remove("k")
        self.assertLess(used() - before, 1_000_000)

    def test_regex_and_all_of_what_the_store_knows(self):
        keys = [f"{kind}-{i}" for kind in ("cat", "dog") for i in range(3)]
        self.store.put_batch(keys, [b"v"] * 6)
        other = self.open()
        self.assertEqual(other.remove_all(), 0)  # It has seen none of them.
        self.assertEqual(self.store.remove_by_regex("^dog-[01]$"), 2)
        self.assertEqual(self.store.batch_is_exist(keys), [1, 1, 1, 0, 0, 1])
        self.assertEqual(self.store.remove_by_regex("("), INVALID)
        self.assertEqual((self.store.remove_all(), self.store.remove_all()), (4, 0))
        self.assertEqual(self.store.batch_is_exist(keys), [0] * 6)

    def test_keys_live_apart_from_other_stores_and_tenants(self):
        self.store.put("k", b"mine")
        tenant = self.open(tenant_id="another")
        self.assertEqual((tenant.get("k"), tenant.remove("k"), self.store.get("k")), (b"", MISSING, b"mine"))
        client = cistern.Client(self.router)
        self.addCleanup(client.close)
        keyed = cistern.keyed.KeyedStore(client, "")
        self.addCleanup(keyed.close)
        self.assertEqual(keyed.exists(["k"]), [False])
        for key in ("", "é/../☃", "a" * 10_000, "\0"):
            self.assertEqual(self.store.put(key, b"v"), 0 if key else INVALID)
        self.assertEqual(self.store.batch_is_exist(["é/../☃", "a" * 10_000, "a" * 9_999]), [1, 1, 0])

    def test_arguments_are_looked_at(self):
        self.assertEqual(self.store.batch_put_from(["a", "b"], [1], [1]), [INVALID] * 2)
        self.assertEqual(self.store.batch_get_into(["a"], [0], [5]), [INVALID])
        self.assertEqual(self.store.put_batch(["a"], []), INVALID)
        config = ReplicateConfig()
        config.soft_pin_ttl_ms = 1000
        self.assertEqual(self.store.put("a", b"v", config), INVALID)
        config.soft_pin_action, config.replica_num = SoftPinAction.ENABLE, 2
        self.assertEqual(self.store.put(key="a", value=b"v", config=config), 0)
        with self.assertRaises(TypeError):
            self.store.put(key="a", wrong=b"v")
        self.assertEqual((self.store.batch_is_exist([]), self.store.get_batch([]), self.store.batch_remove([])), ([], [], []))

    def test_no_local_buffer_no_copies(self):
        store = self.open(local_buffer_size=0)
        self.assertEqual((store.put("k", b"v"), store.is_exist("k"), store.put("empty", b"")), (NO_ROOM, 0, 0))
        memory, at = self.memory(4)
        self.assertEqual((store.put_from("k", at, 4), store.get("k")), (0, bytes(4)))

    def test_names_and_health(self):
        self.assertRegex(self.store.get_hostname(), r"^localhost:1[234]\d\d\d$")
        self.assertEqual(self.open(local_hostname="me:7").get_hostname(), "me:7")
        self.assertEqual(self.store.health_check(), 0)
        self.assertNotEqual(self.open().setup(dict(master_server_addr=self.router, global_segment_size="50%")), 0)


class Guide(Stores):
    def test_what_the_guide_shows_runs(self):
        text = (pathlib.Path(__file__).resolve().parents[3] / "docs/guides/mooncake.md").read_text()
        program = re.search(r"```python\n(.*?)```", text, re.S).group(1).replace("127.0.0.1:7400", self.router)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done)
        script = self.folder / "script.py"
        script.write_text(program.replace("cistern.mooncake_compat import", "mooncake.store import").replace('b"value"', "sys.argv[1].encode()")
                          .replace('"key"', '"key of the script"').replace("from mooncake", "import sys\nfrom mooncake", 1))
        done = subprocess.run([sys.executable, "-m", "cistern.mooncake_compat", str(script), "argument"], capture_output=True, text=True,
                              timeout=harness.PATIENCE)
        self.assertEqual((done.returncode, self.store.get("key of the script")), (0, b"argument"), done)


class Memory(Stores):
    def test_buffers_of_the_caller(self):
        data = value(100_000)
        memory, at = self.memory(120_000)
        ctypes.memmove(memory, data, len(data))
        self.assertEqual((self.store.put_from("k", at, len(data)), self.store.get("k")), (0, data))
        ctypes.memset(memory, 0x5a, 120_000)
        self.assertEqual(self.store.get_into("k", at, 120_000), len(data))
        self.assertEqual(bytes(memory), data + b"\x5a" * 20_000)  # Nothing behind the value.
        ctypes.memset(memory, 0x5a, 120_000)
        self.assertEqual((self.store.get_into("k", at, 99_999), self.store.get_into("no", at, 9)), (INVALID, MISSING))
        self.assertEqual(bytes(memory), b"\x5a" * 120_000)
        self.assertEqual((self.store.unregister_buffer(at), self.store.unregister_buffer(at)), (0, INVALID))

    def test_batches_and_several_buffers_a_key(self):
        memory, at = self.memory(60_000)
        data = value(60_000)
        ctypes.memmove(memory, data, len(data))
        keys = ["a", "b", "c"]
        self.assertEqual(self.store.batch_put_from(keys, [at, at + 20_000, at + 40_000], [20_000] * 3), [0] * 3)
        self.assertEqual(b"".join(self.store.get_batch(keys)), data)
        pointers, sizes = [[at, at + 50_000], [at + 10_000]], [[10, 7_000], [1]]
        self.assertEqual(self.store.batch_put_from_multi_buffers(["d", "e"], pointers, sizes), [0, 0])
        self.assertEqual(self.store.get("d"), data[:10] + data[50_000:57_000])
        ctypes.memset(memory, 0, 60_000)
        self.assertEqual(self.store.batch_get_into_multi_buffers(["d", "no", "e"], [*pointers[:1], [at], pointers[1]], [*sizes[:1], [5], sizes[1]]), [7_010, MISSING, 1])
        self.assertEqual((bytes(memory)[:10], bytes(memory)[50_000:57_000], memory[10_000]), (data[:10], data[50_000:57_000], data[10_000]))
        self.assertEqual(self.store.batch_get_into(["a", "no", "b"], [at, at, at + 20_000], [20_000] * 3), [20_000, MISSING, 20_000])
        self.assertEqual(self.store.batch_upsert_from(["a"], [at + 20_000], [20_000]), [0])
        self.assertEqual(self.store.get("a"), data[20_000:40_000])

    def test_ranges(self):
        one, two = value(36, 1), value(5_000_000, 2)
        self.store.put_batch(["one", "two"], [one, two])
        memory, at = self.memory(64)
        ctypes.memset(memory, 0x5a, 64)
        got = self.store.get_into_ranges([at, at], [["one", "two"], ["no"]], [[[0, 20], [8]], [[60]]], [[[1, 30], [4_999_990]], [[0]]],
                                         [[[4, 3], [10]], [[2]]])
        self.assertEqual(got, [[[4, 3], [10]], [[MISSING]]])
        want = bytearray(b"\x5a" * 64)
        want[0:4], want[20:23], want[8:18] = one[1:5], one[30:33], two[-10:]
        self.assertEqual(bytes(memory), bytes(want))
        for to, start, count in ((63, 0, 2), (0, 35, 2), (0, 36, 1), (-1, 0, 1), (0, 0, 65)):
            self.assertEqual(self.store.get_into_ranges([at], [["one"]], [[[to]]], [[[start]]], [[[count]]]), [[[INVALID]]])
        self.assertEqual(self.store.get_into_ranges([at + 1], [["one"]], [[[0]]], [[[0]]], [[[1]]]), [[[INVALID]]])  # Not registered.
        self.assertEqual(self.store.get_into_ranges([at], [["one", "two"]], [[[0], []]], [[[0, 1], []]], [[[], []]]), [[[INVALID], []]])
        self.assertEqual(bytes(memory), bytes(want))


class Trouble(Stores):
    def test_one_key_under_many_writers_never_gives_others_bytes(self):
        """Puts, replacements and removals of a few keys by several stores; whoever reads gets a whole value of that key, or nothing."""
        stores, keys, wrong = [self.open() for _ in range(4)], [f"k{i}" for i in range(3)], []
        random.seed(seed := random.randrange(1 << 30))

        def work(n):
            rng, store = random.Random(seed + n), stores[n]
            for _ in range(60):
                key = rng.choice(keys)
                mine = f"{key} {n} {rng.getrandbits(64):20} ".encode() * rng.randrange(1, 20_000)
                rng.choice([store.put, store.upsert, store.upsert])(key, mine)
                got = store.get(key)
                stamp = got[:STAMP_BYTES]
                if got and (not stamp.startswith(key.encode() + b" ") or got != stamp * (len(got) // STAMP_BYTES)):
                    wrong.append((key, got[:60]))
                if rng.random() < 0.2:
                    store.remove(key)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [], f"seed {seed}")

    def test_evicted_values_are_misses_and_can_be_put_again(self):
        keys = [f"k{i}" for i in range(150)]
        for i, key in enumerate(keys):
            self.store.put(key, value(4_000_000, i))
        there = self.store.batch_is_exist(keys)
        self.assertIn(0, there)
        self.assertIn(1, there)
        for i, (key, exists) in enumerate(zip(keys, there)):
            got = self.store.get(key)
            self.assertEqual(got, value(4_000_000, i) if exists else b"", key)
        lost = there.index(0)
        self.assertEqual(self.store.put(keys[lost], b"again"), 0)
        self.assertEqual(self.store.get(keys[lost]), b"again")

    def test_F31_dead_cluster_gives_codes(self):
        self.store.put("k", b"v")
        for pid in self.node_pids.values():
            self.kill(pid)
        self.assertEqual((self.store.get("k"), self.store.get_buffer("k"), self.store.is_exist("k")), (b"", None, -1))
        self.assertLess(self.store.put("n", b"v"), 0)
        self.assertLess(self.store.remove("k"), 0)
        self.assertEqual(self.store.health_check(), 2)

    def test_values_stay_unless_their_store_has_a_segment(self):
        first = self.open()
        first.put("stays", b"v")
        first.close()
        self.assertEqual((first.get("stays"), self.store.get("stays")), (b"", b"v"))
        kept = ReplicateConfig()
        kept.replica_num = 2
        second = self.open()
        second._segments = True
        second.put_batch(["goes", "also"], [b"v", b"w"])
        second.put("copied", b"v", kept)
        second.close()
        self.assertEqual(self.store.get_batch(["goes", "also", "copied", "stays"]), [b"", b"", b"v", b"v"])
        third = self.open(global_segment_size=0)
        third._segments = True
        third.put("lent", b"v")
        third.close()
        self.assertEqual(self.store.get("lent"), b"v")


@unittest.skipUnless(TORCH, "no torch")
class Tensors(Stores):
    def test_types_and_shapes_come_back(self):
        import torch

        from cistern.mooncake_compat.tensors import DTYPES
        tensors = {}
        for name in DTYPES:
            dtype = getattr(torch, name, None)
            for shape in ((), (5,), (2, 3, 4), (0, 7), (2, 0, 3)):
                tensors[f"{name}{shape}"] = torch.randint(0, 2, shape).to(dtype)
        tensors["strided"] = torch.arange(24).reshape(4, 6).t()[::2]
        keys = list(tensors)
        self.assertEqual(self.store.batch_put_tensor(keys, list(tensors.values())), [0] * len(keys))
        for key, got in zip(keys, self.open().batch_get_tensor(keys)):
            want = tensors[key]
            self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), key)
            self.assertTrue(torch.equal(got.contiguous().reshape(-1).view(torch.uint8), want.contiguous().reshape(-1).view(torch.uint8)), key)
        self.assertEqual(self.store.put_tensor("sparse", torch.eye(3).to_sparse_csr().values().to(torch.complex32)), int(ErrorCode.SERIALIZE_UNSUPPORTED))
        self.store.put("bytes", bytes(500))
        self.assertIsNone(self.store.get_tensor("bytes"))
        self.assertIsNone(self.store.get_tensor("no"))

    def test_in_memory_of_the_caller_and_cut_for_ranks(self):
        import torch

        tensor = torch.randn(6, 4)
        self.store.put_tensor("t", tensor)
        memory, at = self.memory(4096)
        got = self.store.get_tensor_into("t", at, 4096)
        self.assertTrue(torch.equal(got, tensor))
        self.assertEqual(self.store.put_tensor_from("u", at, self.store.get_size("t")), 0)
        self.assertTrue(torch.equal(self.store.get_tensor("u"), tensor))
        self.assertEqual([self.store.put_tensor_from("w", at, n) for n in (50, self.store.get_size("t") - 1)], [INVALID] * 2)
        # Users reckon with Mooncake's header, 304 bytes: more than ours, and not all of it the tensor's.
        self.assertEqual((self.store.upsert_tensor_from("w", at, 304 + 6 * 4 * 4), self.store.get_size("w")), (0, self.store.get_size("t")))
        self.assertEqual(self.store.put_tensor_with_tp_from("v", at, 304 + 6 * 4 * 4, tp_rank=1, tp_size=2, split_dim=1), 0)
        self.assertTrue(torch.equal(torch.cat([self.store.get_tensor_with_tp("v", rank, 2) for rank in (0, 1)], 1), tensor))
        self.assertEqual(self.store.batch_put_tensor_with_tp_from(["x", "y"], [at, at], [500, 10], tp_size=2), [INVALID] * 2)
        self.assertIsNone(self.store.get_tensor_into("t", at, 10))
        self.assertEqual(self.store.put_tensor_with_tp("s", tensor, tp_size=3), 0)
        for rank in range(3):
            self.assertTrue(torch.equal(self.store.get_tensor_with_tp("s", rank, 3), tensor[2 * rank:2 * rank + 2]))
        self.assertEqual(self.store.put_tensor_with_tp("s", tensor, tp_size=4), INVALID)
        self.assertEqual((self.store.upsert_tensor("t", tensor + 1), bool(torch.equal(self.store.get_tensor("t"), tensor + 1))), (0, True))

    def test_files(self):
        import torch

        tensor, file = torch.arange(5), str(self.folder / "t.safetensors")
        self.store.put_tensor("t", tensor)
        self.assertEqual((self.store.save_tensor_to_safetensor("t", file), self.store.save_tensor_to_safetensor("no", file)), (0, MISSING))
        self.store.remove("t")
        self.assertTrue(torch.equal(self.store.load_tensor_from_safetensor("t", file), tensor))
        self.assertTrue(torch.equal(self.store.get_tensor("t"), tensor))
        self.assertIsNone(self.store.load_tensor_from_safetensor("t", file + ".none"))


if __name__ == "__main__":
    harness.main()
