"""How calls end when something goes wrong around them (a closed store, a fork, an interrupt), against a real cluster:
ends_test.py BIN_DIR TESTS_DIR, by an interpreter that has cistern installed."""
import asyncio, contextlib, ctypes, os, pathlib, signal, subprocess, sys, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern
from cistern import PageResult, aio
from cistern.keyed import KeyedStore
from cistern.lmcache import CisternClient
from cistern.mooncake_compat import ErrorCode, MooncakeDistributedStore


def ends(test, call):
    """What the call gives; a failure when it does not end."""
    got = []
    thread = threading.Thread(target=lambda: got.append(call()), daemon=True)
    thread.start()
    thread.join(harness.PATIENCE)
    test.assertFalse(thread.is_alive(), "the call hangs")
    return got[0]


class Store(harness.Case):
    nodes, ram = 1, "128M"

    def setUp(self):
        super().setUp()
        self.up()
        self.client = cistern.Client(self.router)
        self.addCleanup(self.client.close)
        self.store = KeyedStore(self.client, "ends")
        self.addCleanup(self.store.close)
        self.assertEqual(self.store.put(["a", "b"], [b"1234", b"12345"]), [PageResult.OK] * 2)

    def halt(self):
        """The node stands still: what is asked of it stays outstanding."""
        pid = self.node_pids["node-1"]
        self.kill(pid, signal.SIGSTOP)
        self.addCleanup(self.kill, pid, signal.SIGCONT)
        harness.wait_for(lambda: harness.halted(pid), "a node that stands still")

    def test_closing_ends_calls_while_a_buffer_lives(self):
        buffer = self.client.allocate(4096)
        self.halt()
        got, layout = [], cistern.Layout(model="e", block_tokens=16, part_bytes=64)
        chain = self.client.chain(layout, list(range(64)))
        for _ in range(3):
            self.client.submit_fetch(chain, [bytearray(64) for _ in range(4)], lambda report, error: got.append(error), deadline_ms=60_000)
        ends(self, self.client.close)
        self.assertEqual(len(got), 3)
        memoryview(buffer)[:] = bytes(4096)  # Only its memory is left.

    def test_closing_ends_what_other_threads_wait_in(self):
        layout = cistern.Layout(model="e", block_tokens=16, part_bytes=64)
        chain, client = self.client.chain(layout, list(range(64))), self.client
        client.lookup(chain)  # Connected.
        self.halt()
        calls = {"lookup": lambda: client.lookup(chain, deadline_ms=60_000), "plan": lambda: client.plan(chain, deadline_ms=60_000),
                 "fetch": lambda: client.fetch(chain, [bytearray(64)], deadline_ms=60_000),
                 "store": lambda: client.store(chain, [bytes(64)], deadline_ms=60_000),
                 "remove": lambda: client.remove([chain], deadline_ms=60_000)}
        got = {}

        def wait(name):
            try:
                got[name] = cistern.results(calls[name]())
            except cistern.Error as error:
                got[name] = error.code
        threads = [threading.Thread(target=wait, args=(name,), daemon=True) for name in calls]
        for thread in threads:
            thread.start()
        harness.wait_for(lambda: client.counters()["client_requests_open"] >= len(calls), "threads that wait")
        ends(self, client.close)
        for thread in threads:
            thread.join(5)  # A twelfth of their deadlines.
        cancelled = cistern.Code.CANCELLED
        self.assertEqual(got, {"lookup": cancelled, "plan": cancelled, "remove": cancelled, "fetch": [PageResult.CANCELLED],
                               "store": [PageResult.CANCELLED]})

    def test_a_coroutine_ends_with_its_client_while_a_buffer_lives(self):
        async def body():
            client = await aio.AsyncClient.connect(self.router)
            buffer = client.client.allocate(4096)
            chain = client.chain(cistern.Layout(model="e", block_tokens=16, part_bytes=64), list(range(64)))
            self.halt()
            first, second = (asyncio.ensure_future(client.fetch(chain, [bytearray(64)], deadline_ms=60_000)) for _ in range(2))
            await asyncio.sleep(0)
            await client.close()
            second.cancel()  # There is nothing left to cancel in the library; it may have ended already.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(second, harness.PATIENCE)
            self.assertTrue(second.done())
            done, _ = await asyncio.wait([first], timeout=harness.PATIENCE)
            self.assertEqual((len(done), len(buffer)), (1, 4096))
            first.exception()
        asyncio.run(body())

    def test_mooncake_gives_codes_for_what_are_no_arguments(self):
        store, wrong = MooncakeDistributedStore(), int(ErrorCode.INVALID_PARAMS)
        settings = dict(local_hostname="h", master_server_addr=self.router)
        for deadline_ms in (-1, 1 << 40, None, "x"):
            self.assertEqual(store.setup(dict(settings, deadline_ms=deadline_ms)), wrong, deadline_ms)
        self.assertEqual(store.setup(settings), 0)
        self.addCleanup(store.close)
        self.assertEqual(store.put("k", b"v"), 0)
        for key in (None, 5, "\udc80"):
            self.assertEqual((store.put(key, b"v"), store.get(key), store.is_exist(key), store.remove(key)), (wrong, b"", -1, wrong), key)
            self.assertEqual(store.batch_get_into(["k", key], [1, 1], [0, 0]), [wrong] * 2)
        for pointer, size in ((1, 1 << 63), (1, -1), (1 << 64, 1), (-1, 1), (None, 1), ("x", 1), (1, 1.5)):
            self.assertEqual((store.get_into("k", pointer, size), store.put_from("n", pointer, size)), (wrong, wrong), (pointer, size))
        objects = store._objects
        objects.heads = lambda keys: store.close() or type(objects).heads(objects, keys)  # Closed in the middle of a call.
        self.assertNotEqual(store.put_batch(["x", "y"], [b"1", b"2"]), 0)

    def test_what_is_submitted_to_a_closed_store_is_a_miss(self):
        self.store.close()
        got = []
        self.store.submit_get(["a"], [bytearray(4)], got.append)
        self.store.submit_exists(["a"], got.append)
        self.assertEqual(got, [[PageResult.PEER_GONE], [False]])

    def test_a_closed_client_gives_misses(self):
        self.client.close()
        self.assertNotIn(ends(self, lambda: self.store.get(["a"], [bytearray(4)]))[0], (PageResult.OK, None))

    def test_closing_ends_batches_that_nobody_waits_for(self):
        self.halt()
        ended = threading.Event()
        self.store.submit_get(["a"], [bytearray(4)], lambda results: ended.set())
        ends(self, self.store.close)
        self.assertTrue(ended.is_set())

    def test_a_forked_child_is_told_to_make_its_own(self):
        child = os.fork()
        if child == 0:
            os._exit(0 if self.store.get(["a"], [bytearray(4)]) == [PageResult.PEER_GONE] and self.store.exists(["a"]) == [False] else 1)
        self.addCleanup(lambda: os.waitpid(child, 0) if not done else None)
        done = []

        def gone():
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                done.append(status)
            return pid
        try:
            harness.wait_for(gone, "a child that ends", 20)
        finally:
            if not done:
                os.kill(child, signal.SIGKILL)
        self.assertEqual(done, [0])
        self.assertEqual(self.store.get(["a"], [bytearray(4)]), [PageResult.OK])

    def test_a_driver_outlives_an_error(self):
        real, raised = self.client.poll, threading.Event()

        def once():
            self.client.poll = real
            raised.set()
            raise MemoryError("once")
        self.client.poll = once
        with self.assertLogs("cistern", "ERROR"):
            self.store.get(["b"], [bytearray(5)])
            self.assertTrue(raised.wait(harness.PATIENCE))
            self.assertEqual(ends(self, lambda: self.store.get(["a"], [bytearray(4)])), [PageResult.OK])

    def test_a_driver_that_has_ended_is_started_again(self):
        real = self.client.poll

        def end():
            self.client.poll = real
            raise SystemExit
        self.client.poll = end
        with self.assertLogs("cistern", "WARNING"):
            ends(self, lambda: self.store.get(["b"], [bytearray(5)]))  # By the old one, or by a waiting thread's new one.
            harness.wait_for(lambda: self.client.poll is real, "a driver that ends", 20)
            self.assertEqual(ends(self, lambda: self.store.get(["a"], [bytearray(4)])), [PageResult.OK])

    def test_one_wrong_key_or_buffer_is_its_own_result(self):
        for keys, buffers in ((["a", None], [bytearray(4), bytearray(4)]), (["a", "\udc80"], [bytearray(4), bytearray(4)]),
                              (["a", "b"], [bytearray(4), memoryview(bytearray(10))[::2]]), (["a", "b"], [bytearray(4), None])):
            self.assertEqual(ends(self, lambda: self.store.get(keys, buffers)), [PageResult.OK, PageResult.INVALID], keys)
        self.assertEqual(self.store.put(["c", 5], [b"c", b"5"]), [PageResult.OK, PageResult.INVALID])
        self.assertEqual(self.store.exists(["a", None]), [True, False])

    def test_sizes_are_bounded_and_empty_values_come_back(self):
        with self.assertRaises(ValueError):
            self.store.exists(["a"], size=-1)
        self.assertEqual([self.store.exists(["a"], size=size) for size in (4, 0, 2**62)], [[True], [False], [False]])
        self.assertEqual(self.store.get(["e"], [bytearray()]), [PageResult.MISS])
        self.assertEqual(self.store.put(["e"], [b""]), [PageResult.OK])
        self.assertEqual(self.store.get(["e", "a"], [bytearray(), bytearray()]), [PageResult.OK, PageResult.MISS])
        self.assertEqual((self.store.exists(["e"]), self.store.exists(["e"], size=0)), ([True], [True]))

    def test_no_wait_is_longer_than_the_deadline_and_a_slack(self):
        """Calls that never end on their own, as of a client that nobody drives: the waiting thread takes over."""
        self.store._driver._ending.set()
        self.store._driver._thread.join()
        self.store._driver.ready = lambda: True
        self.assertEqual(ends(self, lambda: self.store.get(["a"], [bytearray(4)]))[0] is not None, True)

    def interrupted(self, begin):
        """Runs begin() while the node stands still and interrupts it once a call is outstanding."""
        self.halt()
        caller = threading.main_thread().ident
        batches = self.watch()

        def interrupt():
            harness.wait_for(lambda: any(batch.outstanding for batch in batches), "a call that is outstanding")
            signal.pthread_kill(caller, signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            begin()
            thread.join()
        thread.join()
        self.assertEqual([batch.outstanding for batch in batches], [False] * len(batches))

    def watch(self):
        batches, real = [], cistern._driver.Batch.__init__

        def init(batch, *args):
            real(batch, *args)
            batches.append(batch)
        cistern._driver.Batch.__init__ = init
        self.addCleanup(setattr, cistern._driver.Batch, "__init__", real)
        return batches

    def test_an_interrupted_batch_has_let_go_of_its_memory(self):
        self.store._deadline_ms = 60_000
        self.interrupted(lambda: self.store.get(["a", "b"], [bytearray(4), bytearray(5)]))

    def test_an_interrupted_mooncake_batch_has_let_go_of_its_memory(self):
        store = MooncakeDistributedStore()
        self.assertEqual(store.setup(dict(local_hostname="h", master_server_addr=self.router, deadline_ms=60_000)), 0)
        self.addCleanup(store.close)
        sizes = [1 << 20] * 3
        self.assertEqual(store.put_batch(["x", "y", "z"], [bytes(n) for n in sizes]), 0)
        memory = (ctypes.c_ubyte * sum(sizes))()
        at = ctypes.addressof(memory)
        pointers = [at, at + sizes[0], at + 2 * sizes[0]]
        heads = store._objects.heads(["x", "y", "z"])
        store._objects.heads = lambda keys: heads  # The node stands still for the values.
        self.interrupted(lambda: store.batch_get_into(["x", "y", "z"], pointers, sizes))


class LMCacheEnds(harness.Case):
    nodes, ram = 1, "128M"

    def setUp(self):
        super().setUp()
        self.up()
        self.connector = CisternClient(self.router)
        self.addCleanup(self.connector.close)

    def completions(self, count):
        ended = []
        harness.wait_for(lambda: ended.extend(self.connector.drain_completions()) or len(ended) >= count, "completions")
        return ended

    def test_every_batch_completes(self):
        number = self.connector.submit_batch_get(["a", "b"], [bytearray(4)])
        self.assertEqual(self.completions(1), [(number, False, "INVALID_ARGUMENT: 2 keys, 1 buffers", [False, False])])
        number = self.connector.submit_batch_get(["a", "b"], [memoryview(bytearray(8))[::2], bytearray(4)])
        self.assertEqual(self.completions(1), [(number, False, "INVALID", [False, False])])
        number = self.connector.submit_batch_exists(["a", None])
        self.assertEqual(self.completions(1), [(number, True, "", [False, False])])

    def test_a_closed_connector_completes_too(self):
        self.connector.close()
        number = self.connector.submit_batch_exists(["a"])
        self.assertEqual(self.completions(1), [(number, True, "", [False])])


if __name__ == "__main__":
    harness.main()
