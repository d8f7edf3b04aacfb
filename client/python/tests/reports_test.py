"""Field reports as an engine's process meets them, against a real cluster: reports_test.py BIN_DIR TESTS_DIR, by an interpreter that has
cistern installed."""
import ctypes, pathlib, signal, subprocess, sys, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern

SIZE = 256 << 10
LAYOUT = dict(model="t", block_tokens=16, part_bytes=SIZE)
CRASHES = 20


class DeviceMemory:
    """What an array in a GPU's memory shows of itself; nobody may touch its bytes."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self):
        self.shape = (ctypes.c_int64 * 1)(SIZE)
        self.tensor = self.Tensor(0x1000, 2, 0, 1, 1, 8, 1, self.shape, None, 0, None, None)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


class Reports(harness.Case):
    nodes = 1

    def setUp(self):
        super().setUp()
        self.up()
        self.client = cistern.Client(self.router)
        self.addCleanup(self.client.close)
        self.layout = cistern.Layout(**LAYOUT)

    def chain(self, blocks, first=0):
        return self.client.chain(self.layout, [first + i for i in range(16 * blocks)])

    def test_F12_device_memory_without_an_ordering_token_is_refused(self):
        chain, memory = self.chain(1), DeviceMemory()
        for call in (self.client.store, self.client.fetch):
            with self.assertRaisesRegex(cistern.InvalidArgument, "ordering token"):
                call(chain, [memory])
            with self.assertRaisesRegex(cistern.InvalidArgument, "ordering token"):
                call(chain, [[bytearray(1), memory]])
        self.assertEqual(self.client.lookup(chain), 0)

    def test_F53_many_readers_of_one_prefix_share_its_transfer(self):
        chain, readers = self.chain(16), 32
        pages = [bytearray([i]) * SIZE for i in range(16)]
        self.assertTrue(self.client.store(chain, pages))
        memory = [[bytearray(SIZE) for _ in range(16)] for _ in range(readers)]
        ended = [threading.Event() for _ in range(readers)]
        reports = [None] * readers
        for n in range(readers):  # Nobody drives the client yet: all are submitted at the same time.
            def done(report, error, n=n):
                reports[n] = report
                ended[n].set()
            self.client.submit_fetch(chain, memory[n], done)

        def all_ended():
            self.client.poll()
            return all(e.is_set() for e in ended)
        harness.wait_for(all_ended, "all readers")
        self.assertTrue(all(report and got == pages for report, got in zip(reports, memory)))
        counters = self.client.counters()
        self.assertEqual(counters["client_single_flight_shared_total"], readers - 1)

    def test_F58_an_engine_killed_at_any_step_leaves_nothing_mapped(self):
        """Connect, allocate, half a store, a lease: kill -9 after each; the node lets go of the put window and the leases."""
        program = f"""
import sys, cistern
step = int(sys.argv[2])
client = cistern.Client(sys.argv[1], lease_ttl_ms=1000)
layout = cistern.Layout(**{LAYOUT!r})
chain = client.chain(layout, list(range(64)))
if step > 0:
    memory = memoryview(client.allocate(4 * {SIZE}))
    client.lookup(chain)
if step == 2:
    client.submit_store(chain, [memory[i * {SIZE}:(i + 1) * {SIZE}] for i in range(4)], lambda report, error: None)
if step > 2:
    assert client.store(chain, [memory[i * {SIZE}:(i + 1) * {SIZE}] for i in range(4)])
    hit = client.plan(chain)
print("there", flush=True)
sys.stdin.read()
"""
        pid = self.node_pids["node-1"]
        self.client.close()
        with cistern.Client(self.router) as other:  # Its connection stands for those that stay.
            other.lookup(other.chain(self.layout, list(range(64))))
            idle = harness.shared_mappings(pid)
            for crash in range(CRASHES):
                engine = subprocess.Popen([sys.executable, "-c", program, self.router, str(crash % 4)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.addCleanup(engine.stdout.close)
                self.addCleanup(engine.stdin.close)
                self.assertEqual(engine.stdout.readline(), "there\n")
                engine.send_signal(signal.SIGKILL)
                engine.wait()
            harness.wait_for(lambda: all(now <= then for now, then in zip(harness.shared_mappings(pid), idle)), "the node to let go of the dead engines' memory", 10)
            harness.wait_for(lambda: self.node_counters()["leases_live"] == 0, "the dead engines' leases to end", 10)
            chain = other.chain(self.layout, list(range(64)))
            self.assertTrue(other.fetch(chain, [bytearray(SIZE) for _ in range(4)]))


if __name__ == "__main__":
    harness.main()
