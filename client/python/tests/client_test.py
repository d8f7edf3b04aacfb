"""The Python package against a real cluster: client_test.py BIN_DIR TESTS_DIR, by an interpreter that has cistern installed."""
import array, ast, asyncio, copy, gc, os, pathlib, re, signal, subprocess, sys, threading, time, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern
from cistern import _cistern, aio

HERE = pathlib.Path(__file__).resolve().parent
SIZE = 64 << 10
BLOCKS_PER_REQUEST_MAX = 16384  # Of transport/messages.h.


def layout(**changes):
    return cistern.Layout(**(dict(model="t", block_tokens=16, part_bytes=SIZE, dtype="bf16", geometry="py") | changes))


def tokens(blocks, salt=0):
    return [(i * 7919 + salt) % 50000 for i in range(16 * blocks)]


def contents(blocks, salt=0):
    return [bytearray((i + salt + k) % 256 for k in range(256)) * (SIZE // 256) for i in range(blocks)]


def empty(blocks):
    return [bytearray(SIZE) for _ in range(blocks)]


class Values(unittest.TestCase):
    def test_errors_have_codes_and_name_the_field(self):
        with self.assertRaises(cistern.InvalidArgument) as caught:
            layout(compute_digest=b"short")
        self.assertEqual(caught.exception.code, cistern.Code.INVALID_ARGUMENT)
        self.assertIn("compute_digest", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)

    def test_no_router_is_unavailable_and_quick(self):
        begin = time.monotonic()
        with self.assertRaises(cistern.Unavailable) as caught:
            cistern.Client(f"127.0.0.1:{harness.free_port()}", wait_for_router=False)
        self.assertLess(time.monotonic() - begin, harness.PATIENCE)
        self.assertEqual(caught.exception.code, cistern.Code.UNAVAILABLE)

    def test_results_are_the_librarys(self):
        for result in cistern.PageResult:
            self.assertEqual(_cistern.page_result_name(result).upper().replace("-", "_"), result.name)

    def test_stub_names_everything_and_nothing_else(self):
        stub = ast.parse(pathlib.Path(_cistern.__file__).with_name("_cistern.pyi").read_text())
        self.assertTrue(pathlib.Path(_cistern.__file__).with_name("py.typed").exists())
        classes = {n.name: {f.name for f in n.body if isinstance(f, ast.FunctionDef)} for n in stub.body if isinstance(n, ast.ClassDef)}
        functions = {n.name for n in stub.body if isinstance(n, ast.FunctionDef)}
        real = {n for n in dir(_cistern) if not n.startswith("_")}
        self.assertEqual(real, set(classes) | functions)
        for name, members in classes.items():
            there = {m for m in vars(getattr(_cistern, name)) if not m.startswith("_")}
            self.assertEqual(there, {m for m in members if not m.startswith("_")}, name)


# Beginnings of the commands in docs/guides, and the tests that run them or, where that takes a GPU, what they are given.
RUN_BY = {
    "cmake --install build/release": "client/package/package_test.py: test_builds_with_cmake",
    "cmake -G Ninja -S client/examples": "client/package/package_test.py: test_builds_with_cmake",
    "build/examples/embed": "client/package/package_test.py: def use",
    "CISTERN_LIBRARY=PREFIX/lib/libcistern.so pip install ./client/python": "client/python/tests/python_test.py: environment.install",
    "python3 -m venv VENV": "client/python/tests/environment.py: \"-m\", \"venv\", folder",
    "python client/examples/reuse.py": "client/python/tests/client_test.py: test_examples_of_reuse",
    "python -m cistern.mooncake_compat": "client/python/tests/mooncake_test.py: test_what_the_guide_shows_runs",
    "python -m sglang.launch_server": "client/python/tests/engines_test.py: test_configurations_in_the_guides_are_taken",
    "cistern up": "client/python/tests/vllm_test.py: def up",
    "vllm serve": "client/python/tests/vllm_parts_test.py: test_guide_shows_a_configuration_that_is_taken",
}


class Guides(unittest.TestCase):
    def test_every_command_is_run_by_a_test(self):
        source, used = HERE.parents[2], set()
        for guide in sorted((source / "docs/guides").glob("*.md")):
            for command in re.findall(r"^    (\S.*)$", guide.read_text(), re.M):
                begin = next((b for b in RUN_BY if command.startswith(b)), None)
                self.assertIsNotNone(begin, f"{guide.name}: nothing runs '{command}'")
                used.add(begin)
        self.assertEqual(used, set(RUN_BY))
        for where in RUN_BY.values():
            file, what = where.split(": ")
            self.assertIn(what, (source / file).read_text(), where)


class Calls(harness.Case):
    nodes = 1

    def setUp(self):
        super().setUp()
        self.up()
        self.client = cistern.Client(self.router)
        self.addCleanup(self.client.close)

    def test_stores_and_fetches(self):
        chain = self.client.chain(layout(), tokens(6))
        self.assertEqual((len(chain), chain.layout.block_bytes, len(chain.hash(0))), (6, SIZE, 32))
        self.assertEqual(self.client.lookup(chain), 0)
        missing = self.client.fetch(chain, empty(6))
        self.assertEqual((missing.hit_blocks, missing.ok_pages, missing.failed), (0, 0, [0, 1, 2, 3, 4, 5]))
        self.assertEqual(set(cistern.results(missing)), {cistern.PageResult.MISS})
        want = contents(6)
        stored = self.client.store(chain, want)
        self.assertTrue(stored)
        self.assertEqual((stored.bytes, set(cistern.results(stored))), (6 * SIZE, {cistern.PageResult.OK}))
        self.assertEqual(set(cistern.results(self.client.store(chain, want))), {cistern.PageResult.EXISTS})
        got = empty(6)
        self.assertTrue(self.client.fetch(chain, got))
        self.assertEqual(got, want)
        hit = self.client.plan(chain)
        self.assertEqual((hit.blocks, cistern.PageResult(hit.stopped_by_code), hit.owner(0)), (6, cistern.PageResult.OK, "node-1"))
        part = empty(2)
        self.assertTrue(self.client.load(hit, part, first=3))
        self.assertEqual(part, want[3:5])
        self.client.release(hit)
        self.assertEqual(self.client.counters()["client_hit_blocks_total"], 12)

    def test_removed_blocks_are_gone_for_all_but_who_reads_them(self):
        chain, want = self.client.chain(layout(), tokens(6)), contents(6)
        first, last = self.client.chain(layout(), tokens(2)), self.client.chain(layout(), tokens(8))
        self.assertTrue(self.client.store(chain, want))
        hit, got = self.client.plan(chain), empty(6)
        self.assertEqual(self.client.remove([]), 0)
        self.assertEqual((self.client.remove([first]), self.client.lookup(chain)), (2, 0))
        self.assertTrue(self.client.load(hit, got))
        self.assertEqual(got, want)
        self.client.release(hit)
        self.assertTrue(self.client.store(first, contents(2, 1)))  # Their names are free for other bytes.
        self.assertTrue(self.client.fetch(last, got := empty(8)).ok_pages == 6)
        self.assertEqual(got[:6], contents(2, 1) + want[2:])
        self.assertEqual((self.client.remove([last, first]), self.client.lookup(first)), (6, 0))
        self.kill(self.node_pids["node-1"])
        with self.assertRaisesRegex(cistern.Error, "node-1"):
            self.client.remove([first])

    def test_a_removal_has_one_deadline_for_all_its_requests(self):
        """Eight requests' worth of blocks, and a node that is silent: the caller waits once, not once a request."""
        chain = self.client.chain(layout(), array.array("I", range(16 * BLOCKS_PER_REQUEST_MAX)))
        self.assertEqual((len(chain), self.client.remove([chain] * 8)), (BLOCKS_PER_REQUEST_MAX, 0))
        self.kill(self.node_pids["node-1"], signal.SIGSTOP)
        begin = time.monotonic()
        try:
            with self.assertRaises(cistern.Error) as caught:
                self.client.remove([chain] * 8, deadline_ms=1000)
        finally:
            self.kill(self.node_pids["node-1"], signal.SIGCONT)
        self.assertEqual(caught.exception.code, cistern.Code.DEADLINE_EXCEEDED)
        self.assertLess(time.monotonic() - begin, 3)

    def test_pages_of_several_pieces_and_of_the_window(self):
        chain = self.client.chain(layout(), tokens(2, 5))
        buffer = self.client.allocate(2 * SIZE)
        view = memoryview(buffer)
        view[:] = b"".join(contents(2, 9))
        self.assertTrue(self.client.store(chain, [[view[:SIZE // 4], view[SIZE // 4:SIZE]], view[SIZE:]]))
        del view, buffer
        head, tail = bytearray(1000), bytearray(SIZE - 1000)
        second = bytearray(SIZE)
        self.assertTrue(self.client.fetch(chain, [[head, tail], second]))
        self.assertEqual([bytes(head + tail), bytes(second)], [bytes(p) for p in contents(2, 9)])

    def test_tokens_from_buffers_are_the_same_tokens(self):
        ids = tokens(3)
        want = self.client.chain(layout(), ids).hash(2)
        for form in (array.array("I", ids), array.array("i", ids), array.array("q", ids), tuple(ids)):
            self.assertEqual(self.client.chain(layout(), form).hash(2), want)
        grown = self.client.extend(self.client.chain(layout(), ids[:16]), ids[16:])
        self.assertEqual((grown.hash(2), grown.fingerprint(2)), (want, self.client.chain(layout(), ids).fingerprint(2)))
        salted = self.client.chain(layout(), ids, [cistern.Extra(cistern.ExtraKind.SALT, 0, 0, b"tenant")])
        self.assertNotEqual(salted.hash(0), self.client.chain(layout(), ids).hash(0))

    def test_chains_travel_between_processes_of_an_engine(self):
        chain = self.client.chain(layout(), tokens(3))
        back = copy.copy(chain)  # By the state that vLLM's messages to its workers carry.
        self.assertEqual([back.hash(i) for i in range(3)], [chain.hash(i) for i in range(3)])
        self.client.store(back, contents(3))
        self.assertEqual(self.client.lookup(chain), 3)
        with self.assertRaises(cistern.InvalidArgument):
            cistern.Chain.__new__(cistern.Chain).__setstate__(b"something else")

    def test_bad_input_is_named(self):
        chain = self.client.chain(layout(), tokens(1))
        for want, call in (("tokens", lambda: self.client.chain(layout(), [1, -2])), ("tokens", lambda: self.client.chain(layout(), ["x"])),
                           ("tokens", lambda: self.client.chain(layout(), array.array("d", [1.0]))),
                           ("tokens", lambda: self.client.chain(layout(), array.array("i", [-1] * 16))),
                           ("extras", lambda: self.client.chain(layout(), tokens(1), [("salt",)])),
                           ("extras", lambda: self.client.chain(layout(), tokens(1), [("salt", 0, 0, b"x")])),
                           ("extras", lambda: self.client.chain(layout(), tokens(1), [(256 + cistern.ExtraKind.LORA, 0, 0, b"x")])),
                           ("may be written", lambda: self.client.fetch(chain, [bytes(SIZE)])),
                           ("pages", lambda: self.client.fetch(chain, bytearray(SIZE))),
                           ("block_tokens", lambda: self.client.chain(layout(block_tokens=0), [1])),
                           ("pages[0].bytes", lambda: self.client.store(chain, [bytes(5)])),
                           ("slice", lambda: self.client.lookup(chain, slice_first=1))):
            with self.assertRaises(cistern.InvalidArgument) as caught:
                call()
            self.assertIn(want, str(caught.exception))

    def test_closed_client_says_so(self):
        chain = self.client.chain(layout(), tokens(1))
        self.client.close()
        for call in (lambda: self.client.lookup(chain), self.client.counters, lambda: self.client.fetch(chain, empty(1)), self.client.poll):
            with self.assertRaises(cistern.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, cistern.Code.FAILED_PRECONDITION)

    def test_waiting_leaves_the_interpreter_to_others(self):
        """A stopped node: the call waits for its deadline while another thread goes on counting."""
        chain = self.client.chain(layout(), tokens(1))
        self.client.lookup(chain)  # The connection is there.
        self.kill(self.node_pids["node-1"], signal.SIGSTOP)
        ended = threading.Event()
        waiting = threading.Thread(target=lambda: (self.client.lookup(chain, deadline_ms=500), ended.set()))
        waiting.start()
        count = 0
        while not ended.is_set():
            count += 1
        waiting.join()
        self.assertGreater(count, 1000)
        self.kill(self.node_pids["node-1"], signal.SIGCONT)

    def test_F31_dead_cluster_costs_misses(self):
        chain = self.client.chain(layout(), tokens(2))
        self.client.store(chain, contents(2))
        self.kill(self.node_pids["node-1"])
        report = self.client.fetch(chain, empty(2), deadline_ms=500)
        self.assertEqual(report.ok_pages, 0)
        self.assertEqual(self.client.lookup(chain, deadline_ms=500), 0)

    def test_page_map_moves_an_engines_pages(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed here; it is optional")
        paged = [numpy.zeros((8, 2, 128, 128), dtype=numpy.uint8) for _ in range(3)]
        for i, tensor in enumerate(paged):
            tensor[...] = numpy.arange(tensor.size).reshape(tensor.shape) % 249 + i
        pages = cistern.PageMap(paged)
        self.assertEqual((pages.blocks, pages.slices, pages.layers, pages.block_bytes), (8, 2, 3, 6 * 16384))
        mine = layout(part_bytes=3 * 16384, slices=2, geometry="map")
        chain = self.client.chain(mine, tokens(2))
        self.assertTrue(self.client.store(chain, pages.pages([5, 3])))
        want = [tensor[[5, 3]].copy() for tensor in paged]
        for tensor in paged:
            tensor[...] = 0
        self.assertTrue(self.client.fetch(chain, pages.pages([1, 2])))
        for tensor, pattern in zip(paged, want):
            self.assertTrue((tensor[[1, 2]] == pattern).all())
            self.assertFalse(tensor[0].any() or tensor[3:].any())
        half = bytearray(3 * 16384)  # A rank that has the second slice alone.
        self.assertTrue(self.client.fetch(chain, [half], slice_first=1, slice_count=1))
        self.assertEqual(bytes(half), b"".join(pattern[0, 1].tobytes() for pattern in want))
        spans = self.client.chain(layout(part_bytes=16384, slices=2, spans=3, geometry="spans"), tokens(2))
        self.assertTrue(self.client.store(spans, pages.pages([1, 2])))
        hit, last = self.client.plan(spans), bytearray(2 * 16384)  # The last layer of both slices, of the second block.
        self.assertTrue(self.client.load(hit, [last], first=1, span_first=2, span_count=1))
        self.assertEqual(bytes(last), want[2][1].tobytes())
        with self.assertRaisesRegex(cistern.InvalidArgument, "spans"):
            self.client.load(hit, [last], span_first=2, span_count=2)
        first = [bytearray(2 * 16384) for _ in range(2)]  # The first layer of both blocks, without a plan.
        self.assertTrue(self.client.fetch(spans, first, span_count=1))
        self.assertEqual([bytes(page) for page in first], [want[0][i].tobytes() for i in range(2)])
        flat = bytearray(2 * pages.block_bytes)
        pages.pages([1, 2]).copy_to(flat)
        pages.pages([6, 7]).copy_from(flat)
        self.assertTrue((paged[2][6] == paged[2][1]).all())
        for ids, first in (([8], 0), ([-1], 0), ([0], 1)):
            with self.assertRaises(IndexError):
                pages.pages(ids, first_block=first)
        one = numpy.zeros((1, 2, 64), numpy.uint8)
        self.assertEqual(cistern.PageMap([numpy.broadcast_to(one, (1, 2, 64)).copy()]).blocks, 1)
        for twice in (numpy.lib.stride_tricks.as_strided(one, (3, 2, 64), (0, 64, 1)), numpy.lib.stride_tricks.as_strided(one, (2, 2, 32), (32, 0, 1)),
                      numpy.lib.stride_tricks.as_strided(one, (2, 2, 64), (32, 64, 1))):
            with self.assertRaisesRegex(cistern.InvalidArgument, "share memory"):
                cistern.PageMap([twice])
        for bad in ([], [numpy.zeros((4, 4), numpy.uint8)], [paged[0], paged[1][:4]], [paged[0].transpose(0, 1, 3, 2)], [numpy.zeros((0, 2, 4), numpy.uint8)]):
            with self.assertRaises(cistern.InvalidArgument):
                cistern.PageMap(bad)

    def test_asyncio(self):
        async def body():
            async with await aio.AsyncClient.connect(self.router) as client:
                chains = [client.chain(layout(), tokens(2, 100 + i)) for i in range(8)]
                await asyncio.gather(*(client.store(c, contents(2, i)) for i, c in enumerate(chains)))
                self.assertEqual(await asyncio.gather(*(client.lookup(c) for c in chains)), [2] * 8)
                hit = await client.plan(chains[3])
                got = empty(2)
                self.assertTrue(await client.load(hit, got))
                self.assertEqual(got, contents(2, 3))
                with self.assertRaises(cistern.InvalidArgument):
                    await client.lookup(chains[0], slice_first=1)
                # Cancelled while the node stands still: ends at once, and the memory is ours again.
                self.kill(self.node_pids["node-1"], signal.SIGSTOP)
                said = []
                asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
                for call in (client.fetch(chains[0], empty(2), deadline_ms=60000), client.lookup(chains[0], deadline_ms=60000)):
                    task = asyncio.ensure_future(call)
                    await asyncio.sleep(0)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await asyncio.wait_for(task, harness.PATIENCE)
                # However often it is told, it does not end before the library has let go of the memory.
                cancelled, cancel = [], client.client.cancel
                client.client.cancel = cancelled.append
                task = asyncio.ensure_future(client.fetch(chains[0], empty(2), deadline_ms=60000))
                for _ in range(3):
                    await asyncio.sleep(0)
                    task.cancel()
                await asyncio.sleep(0)
                self.assertFalse(task.done())
                cancel(cancelled[0])
                with self.assertRaises(asyncio.CancelledError):
                    await task
                del task
                gc.collect()
                self.assertEqual(said, [])  # An error that nobody asked for.
                self.kill(self.node_pids["node-1"], signal.SIGCONT)
        asyncio.run(body())

    def test_many_threads_share_a_client(self):
        chains = [self.client.chain(layout(), tokens(2, 500 + i)) for i in range(8)]
        wrong = []

        def work(i):
            self.client.store(chains[i], contents(2, i))
            for _ in range(20):
                got = empty(2)
                if not self.client.fetch(chains[i], got) or got != contents(2, i):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_threads_in_calls_do_not_keep_a_process_from_ending_well(self):
        """Threads that nobody joins, in calls and in callbacks, while the interpreter ends."""
        program = f"""
import cistern, threading
client = cistern.Client({self.router!r})
chain = client.chain(cistern.Layout(model="t", block_tokens=16, part_bytes=64), list(range(64)))
inside = threading.Semaphore(0)
def ask():
    while True:
        client.lookup(chain)
        inside.release()
def submit():
    while True:
        client.submit_lookup(chain, lambda *result: inside.release())
        client.poll()
for work in (ask, ask, submit, submit):
    threading.Thread(target=work, daemon=True).start()
for _ in range(100):
    inside.acquire()
"""
        for _ in range(10):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=harness.PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_readme_example_runs(self):
        text = (HERE.parent / "README.md").read_text()
        program = re.search(r"```python\n(.*?)```", text, re.S).group(1)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=harness.PATIENCE,
                              env=os.environ | {"CISTERN_ROUTER": self.router})
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout, "stored 6 of 6\ncached 6 same bytes True failed []\n")

    def test_examples_of_reuse(self):
        example = HERE.parents[1] / "examples/reuse.py"
        run = lambda: subprocess.run([sys.executable, str(example), self.router], capture_output=True, text=True, timeout=harness.PATIENCE)
        done = run()
        self.assertEqual((done.returncode, run().stdout), (0, done.stdout))  # Each run has tokens of its own.
        turns = [tuple(map(int, t)) for t in re.findall(r"turn \d+: (\d+) of (\d+) tokens", done.stdout)]
        # Each turn finds the whole blocks of the prompt before it.
        self.assertEqual([t[0] for t in turns], [0] + [t[1] // 16 * 16 for t in turns[:-1]])
        self.assertIn("the first user finds 0 tokens of the shared 800, the others 800 to 800", done.stdout)
        first, last = map(float, re.search(r"static first: hit ratio (\S+), user first: hit ratio (\S+)", done.stdout).groups())
        self.assertGreater(first, 0.8)
        self.assertEqual(last, 0)
        self.assertIn("agent: 2800 of 2810 tokens were cached, 99.6%", done.stdout)
        gone = subprocess.run([sys.executable, str(example), f"127.0.0.1:{harness.free_port()}"], capture_output=True, text=True, timeout=60)
        self.assertEqual((gone.returncode, len(gone.stderr.strip().splitlines())), (2, 1), gone)

    def test_bench_prints_what_the_command_does(self):
        done = subprocess.run([sys.executable, "-m", "cistern", "bench", "read", "--size", "65536", "--batch", "2", "--seconds", "0.2", "--json"],
                              capture_output=True, text=True, timeout=harness.PATIENCE, env=os.environ | {"CISTERN_ROUTER": self.router})
        self.assertEqual(done.returncode, 0, done)
        out = __import__("json").loads(done.stdout)
        self.assertGreater(out["gbps"], 0)
        self.assertEqual((out["op"], out["size"], out["batch"], out["failed_ops"]), ("read", 65536, 2, 0))


if __name__ == "__main__":
    harness.main()
