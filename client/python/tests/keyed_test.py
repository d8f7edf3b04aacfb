"""Values under opaque keys, against a real cluster: keyed_test.py BIN_DIR TESTS_DIR, by an interpreter that has cistern installed."""
import os, pathlib, queue, random, select, signal, sys, tempfile, threading, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern
from cistern import PageResult
from cistern.keyed import PART_BYTES_MAX, VALUE_BYTES_MAX, KeyedStore
from cistern.lmcache import CisternClient


def value(size, seed=0):
    return random.Random(seed << 32 | size).randbytes(size)


def in_background(call):
    """Begins a call on another thread; what this returns gives its result, and fails when it does not come."""
    results = queue.Queue()
    threading.Thread(target=lambda: results.put(call()), daemon=True).start()
    return lambda: results.get(timeout=harness.PATIENCE)


class Keyed(harness.Case):
    nodes, ram = 2, "256M"

    def setUp(self):
        super().setUp()
        self.up()
        self.client = cistern.Client(self.router)
        self.addCleanup(self.client.close)
        self.store = KeyedStore(self.client, "test")
        self.addCleanup(self.store.close)

    def test_values_of_every_size_come_back(self):
        sizes = [0, 1, 7, 4096, 70_001, PART_BYTES_MAX - 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, 3 * PART_BYTES_MAX + 5]
        keys, values = [f"k{size}" for size in sizes], [value(size) for size in sizes]
        self.assertEqual(self.store.exists(keys), [False] * len(keys))
        self.assertEqual(self.store.put(keys, values), [PageResult.OK] * len(keys))
        self.assertEqual(self.store.exists(keys), [True] * len(keys))
        self.assertEqual([self.store.size_of(key) for key in keys], sizes)
        self.assertEqual(self.store.exists([keys[3]], size=4096), [True])
        self.assertEqual(self.store.exists([keys[3]], size=4097), [False])
        buffers = [bytearray(size) for size in sizes]
        self.assertEqual(self.store.get(keys[1:], buffers[1:]), [PageResult.OK] * (len(keys) - 1))
        self.assertEqual([bytes(b) for b in buffers], values)

    def test_misses_wrong_sizes_and_second_puts(self):
        self.assertEqual(self.store.put(["a"], [b"first"]), [PageResult.OK])
        self.assertEqual(self.store.put(["a"], [b"first"]), [PageResult.EXISTS])
        self.assertEqual(self.store.get(["a", "b"], [bytearray(4), bytearray(5)]), [PageResult.MISS] * 2)
        self.assertIsNone(self.store.size_of("b"))
        self.assertEqual(self.store.get(["a"], [bytes(5)]), [PageResult.INVALID])  # Memory that may not be written.
        self.assertEqual((self.store.get([], []), self.store.put([], []), self.store.exists([])), ([], [], []))
        for call in (self.store.get, self.store.put, lambda *words: self.store.submit_get(*words, print), lambda *words: self.store.submit_put(*words, print)):
            with self.assertRaises(ValueError):
                call(["a"], [])

    def test_spaces_do_not_see_each_other(self):
        other = KeyedStore(self.client, "other")
        self.addCleanup(other.close)
        self.store.put(["k"], [b"mine"])
        self.assertEqual(other.exists(["k"]), [False])
        self.assertEqual(other.get(["k"], [bytearray(4)]), [PageResult.MISS])

    def test_too_large_is_said(self):
        self.assertEqual(self.store._blocks(VALUE_BYTES_MAX + 1), 65)
        self.assertEqual(self.store.put(["x"], [bytearray(VALUE_BYTES_MAX + 1)]), [PageResult.TOO_LARGE])

    def test_many_threads(self):
        wrong = []
        store = KeyedStore(self.client, "many", deadline_ms=60_000)  # Of a machine that does other things too.
        self.addCleanup(store.close)

        def work(n):
            keys = [f"t{n}-{i}" for i in range(40)]
            values = [value(5000 + i, n) for i in range(40)]
            store.put(keys, values)
            got = [bytearray(len(v)) for v in values]
            if store.get(keys, got) != [PageResult.OK] * 40 or [bytes(g) for g in got] != values:
                wrong.append(n)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_calls_of_a_store_that_was_closed_end(self):
        """Nobody drives them but those who wait: once the client works still, once it is gone."""
        self.store.put(["k"], [b"value"])
        self.store.close()
        got = bytearray(5)
        ended = in_background(lambda: self.store.get(["k"], [got]))
        self.assertEqual((ended(), bytes(got)), ([PageResult.OK], b"value"))
        for pid in self.node_pids.values():
            self.kill(pid, signal.SIGSTOP)
        self.assertNotIn(in_background(lambda: self.store.get(["k"], [got]))()[0], (PageResult.OK, PageResult.EXISTS))
        self.client.close()
        self.assertEqual(in_background(lambda: self.store.get(["k"], [got]))(), [PageResult.INVALID])

    def test_dead_cluster_is_a_miss(self):
        self.store.put(["k"], [b"value"])
        for pid in self.node_pids.values():
            self.kill(pid)
        self.assertEqual(self.store.exists(["k"]), [False])
        self.assertNotIn(self.store.get(["k"], [bytearray(5)])[0], (PageResult.OK, PageResult.EXISTS))
        self.assertNotIn(self.store.put(["n"], [b"value"])[0], (PageResult.OK, PageResult.EXISTS))


class LMCacheConnector(harness.Case):
    """The methods that LMCache calls, as it calls them; engines_test.py has its own adapter in between."""
    nodes = 1

    def setUp(self):
        super().setUp()
        self.up()
        self.connector = CisternClient(self.router)
        self.addCleanup(self.connector.close)

    def end_of(self, number):
        while True:
            ready, _, _ = select.select([self.connector.event_fd()], [], [], harness.PATIENCE)
            self.assertTrue(ready, "the file descriptor told nothing")
            for ended in self.connector.drain_completions():
                if ended[0] == number:
                    return ended[1:]

    def test_batches_end_through_the_file_descriptor(self):
        keys, values = ["m@1@0@aa", "m@1@0@bb"], [value(30_000, 1), value(30_000, 2)]
        self.assertEqual(self.end_of(self.connector.submit_batch_exists(keys)), (True, "", [False, False]))
        self.assertEqual(self.end_of(self.connector.submit_batch_set(keys, [memoryview(v) for v in values])), (True, "", [True, True]))
        self.assertEqual(self.end_of(self.connector.submit_batch_exists(keys + ["no"])), (True, "", [True, True, False]))
        got = [bytearray(30_000) for _ in range(3)]
        self.assertEqual(self.end_of(self.connector.submit_batch_get(["no", *keys], [memoryview(g) for g in got])), (True, "", [False, True, True]))
        self.assertEqual([bytes(g) for g in got[1:]], values)
        self.connector.close()
        self.connector.close()  # Twice is once.

    def test_a_drain_after_the_end_reads_nobody_elses_file(self):
        self.connector.close()
        with tempfile.TemporaryFile() as other:
            other.write(b"something")
            other.seek(0)
            os.dup2(other.fileno(), self.connector.event_fd())  # Its number is free, and taken again.
            self.addCleanup(os.close, self.connector.event_fd())
            self.assertEqual((self.connector.drain_completions(), other.read()), ([], b"something"))


if __name__ == "__main__":
    harness.main()
