"""Commands and clients while their peers die: each ends in its time with an answer or one clear line, and no process dies with a peer."""
import json, os, random, signal, time, unittest

import harness
from harness import Case, Lines, run

RUNS = 5 if harness.instrumented() else 15  # Of each short command: its end is where it used to crash, once in a while.


class Commands(Case):
    def timed(self, *words, seconds):
        """What a command says; it ends by itself within the time, whatever its peers do."""
        begin = time.monotonic()
        done = run(harness.BIN / "cistern", *words, "--router", self.router, "--json")
        took = time.monotonic() - begin
        self.assertIn(done.returncode, (0, 2), done)
        self.assertLessEqual(took, seconds * (10 if harness.instrumented() else 1), (words, done))
        return json.loads(done.stdout)

    def tokens(self):
        file = self.folder / "tokens"
        file.write_text(" ".join(str(i % 50000) for i in range(16 * 64)))
        return file

    def test_a_stopped_node_is_told_of_and_every_command_ends_well(self):
        self.up()
        self.kill(self.node_pids["node-2"], signal.SIGSTOP)
        for _ in range(RUNS):
            nodes = {node["id"]: node for node in self.timed("status", seconds=2)["nodes"]}
            self.assertEqual((nodes["node-1"]["stale"], nodes["node-2"]["stale"]), (False, True))
            self.assertRegex(nodes["node-2"]["stale_why"], "^node-2: (no answer in time|it cannot be reached)$|gone")
            found = self.timed("lookup", "--tokens", self.tokens(), "--block-tokens", 16, seconds=4)
            self.assertEqual(found["hit_tokens"], 0)
        peers = {row["to"]: row["path"] for row in self.timed("peers", seconds=5)["peers"] if row["from"] == "client"}
        self.assertEqual(peers["node-1/0"], "map")
        self.assertNotEqual(peers.get("node-2/0", "gone from the map"), "map")

    def test_a_stopped_router_is_told_of_and_every_command_ends_well(self):
        self.up()
        self.kill(self.cluster["router"]["pid"], signal.SIGSTOP)
        for words in (("status",), ("peers",), ("lookup", "--tokens", self.tokens()), ("bench", "read", "--seconds", 1)):
            self.assertIn(self.router, self.timed(*words, seconds=7)["error"])

    def test_up_starts_a_node_again_that_dies_while_it_waits(self):
        """As one looks that was killed just before: there, then not."""
        self.up()
        silent = self.node_pids["node-2"]
        self.kill(silent, signal.SIGSTOP)
        up = self.start_cistern("up", "--dir", self.folder / "c", "--detach")
        gone = lambda: any(n["id"] == "node-2" and n["state"] == "gone" for n in self.cistern("status")["nodes"])
        harness.wait_for(gone, "the router to miss the node, and so `up`")
        self.kill(silent)
        pids = {node["id"]: node["pid"] for node in self.finish(up)["nodes"]}
        self.assertEqual(pids["node-1"], self.node_pids["node-1"])
        self.assertNotEqual(pids["node-2"], silent)
        self.assertFalse(any(node["stale"] for node in self.cistern("status")["nodes"]))

    def test_bench_says_what_happened_when_all_nodes_die(self):
        self.up()
        bench = self.start_cistern("bench", "read", "--seconds", 6, "--size", "64K")
        harness.wait_for(lambda: self.node_counters().get("put_bytes_total", 0) > 0, "the bench to be under way")
        for pid in self.node_pids.values():
            self.kill(pid)
        out = self.finish(bench, codes=(1, 2))  # Some reads failed, or none succeeded.
        self.assertTrue(out.get("failed_ops", 0) > 0 or "\n" not in out["error"].strip(), out)


class Closing(Case):
    ROUNDS = 60 if harness.instrumented() else 250

    def close_while(self, transport):
        """Clients close in a loop while nodes and the router are killed, stopped and started."""
        seed = int(os.environ.get("CISTERN_TEST_SEED", "1"))
        print("seed", seed)
        rng = random.Random(seed)
        self.up()
        loop = Lines(harness.TESTS / "close_loop", "--router", self.router, "--transport", transport, "--rounds", self.ROUNDS, "--seed", seed)
        self.addCleanup(loop.stop)
        loop.next("round", good=lambda line: line["ok"] > 0)
        while not loop.events("done") and loop.process.poll() is None:
            victim = rng.choice([*self.node_pids.values(), *self.node_pids.values(), self.cluster["router"]["pid"]])
            if rng.random() < 0.5:
                self.kill(victim, signal.SIGSTOP)
                harness.wait_for(lambda n=len(loop.lines): len(loop.lines) >= n + 3 or loop.ended, "three rounds")
                self.kill(victim, signal.SIGCONT)
            else:
                self.kill(victim)
                harness.wait_for(lambda n=len(loop.lines): len(loop.lines) >= n + 3 or loop.ended, "three rounds")
                self.up_again()
        self.assertEqual(loop.process.wait(harness.PATIENCE), 0, "it died with a peer")
        rounds = loop.events("round")
        self.assertEqual(len(rounds), self.ROUNDS)
        for line in rounds:
            self.assertEqual((line["ended"], line["wrong"]), (line["begun"], 0), line)
            self.assertLess(line["close_ms"], 20_000 if harness.instrumented() else 2000, line)
        self.assertGreater(sum(line["ok"] for line in rounds), 0)

    def test_over_map(self):
        self.close_while("map")

    def test_over_sockets(self):
        self.close_while("socket")


if __name__ == "__main__":
    harness.main()
