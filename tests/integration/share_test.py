"""Ranks of one engine on one host, in processes of their own: one pulls each part, and one may be killed whenever."""
import contextlib, json, os, pathlib, random, signal, time, unittest

import harness
from harness import Case, wait_for

RANKS, BLOCKS, PART = 4, 64, 256 << 10
SHM = pathlib.Path("/dev/shm")


class Ranks(Case):
    nodes = 2

    def setUp(self):
        super().setUp()
        self.name, self.before = f"engine-{os.getpid()}-{time.monotonic_ns()}", self.segments()
        self.up()

    def segments(self):
        return {path.name for path in SHM.glob(f"cistern-share-*-{os.geteuid()}-*")}

    def rank(self, share=True):
        words = ("--host-share", self.name) if share else ()
        client = self.client("held", "--transport", "socket", "--blocks", BLOCKS, "--part", PART, "--deadline-ms", 10_000, *words)
        client.at = 0
        self.fetch(client)
        return client

    def fetch(self, rank):
        rank.at, line = rank.next("fetch", rank.at)
        self.assertEqual((line["ok"], line["wrong"]), (BLOCKS, 0), line)
        return line

    def stored(self, writer, seed):
        """A chain that no rank has seen."""
        writer.say(f"seed {seed}")
        writer.say("store")
        writer.stores, _ = writer.next("store", writer.stores)

    def writer(self):
        writer = self.rank(share=False)
        writer.stores, _ = writer.next("store")
        return writer

    def begin(self, ranks, seed):
        for rank in ranks:
            rank.say(f"seed {seed}")
            rank.say("go")

    def test_nodes_send_a_part_once_a_host(self):
        writer, seeds = self.writer(), iter(range(100, 200))
        for share in (False, True):
            ranks, copies, taken = [self.rank(share) for _ in range(RANKS)], [], 0
            for _ in range(5):
                self.stored(writer, seed := next(seeds))
                before = self.node_counters()["inline_bytes_total"]
                self.begin(ranks, seed)
                lines = [self.fetch(rank) for rank in ranks]
                copies.append((self.node_counters()["inline_bytes_total"] - before) / (BLOCKS * PART))
            print(f"sharing: {share}; copies that the nodes sent for {RANKS} ranks: {copies}")
            if share:
                self.assertEqual(sum(line["share_refused_total"] + line["share_failed_total"] for line in lines), 0)
                # Late ones cost a copy more; a machine that stands still for a while may have some. Under a sanitizer who pulls
                # is often quiet for longer than others wait (kShareQuietMax): that sharing saves anything is all that is asked.
                if harness.instrumented():
                    self.assertLess(min(copies), RANKS)
                else:
                    self.assertLess(sorted(copies)[len(copies) // 2], 1.5)
            else:
                self.assertEqual(set(copies), {float(RANKS)})
            for rank in ranks:
                rank.stop()
        wait_for(lambda: self.segments() <= self.before, "the segment to go with its last user")

    def test_kill_9_of_any_rank_at_any_moment(self):
        seed = random.randrange(1 << 30)
        print("seed", seed)
        rng = random.Random(seed)
        writer, ranks, late = self.writer(), [self.rank() for _ in range(RANKS)], 0
        for number in range(200, 212):
            self.stored(writer, number)
            self.begin(ranks, number)
            victim = ranks.pop(rng.randrange(RANKS))
            end = time.monotonic() + rng.uniform(0, 0.03)
            while time.monotonic() < end:
                pass  # Not a sleep: some of these moments are shorter than one takes.
            self.kill_rank(victim)
            late += sum(self.fetch(rank)["share_late_total"] for rank in ranks)
            ranks.insert(0, self.rank())
        print("parts that a killed rank did not bring, as the others counted:", late)
        for rank in ranks:
            self.kill_rank(rank)
        self.rank().stop()  # Whoever comes next cleans up.
        self.assertLessEqual(self.segments(), self.before)

    def test_a_rank_that_stands_still_is_not_waited_for(self):
        writer, ranks = self.writer(), [self.rank() for _ in range(2)]
        self.stored(writer, 300)
        self.begin(ranks[:1], 300)
        self.kill(ranks[0].process.pid, signal.SIGSTOP)
        self.begin(ranks[1:], 300)
        self.fetch(ranks[1])
        self.kill(ranks[0].process.pid, signal.SIGCONT)
        self.fetch(ranks[0])

    def kill_rank(self, rank):
        rank.process.send_signal(signal.SIGKILL)
        rank.process.wait()
        with contextlib.suppress(OSError):
            rank.process.stdin.close()


class CAbi(Case):
    nodes = 2

    def test_ranges_of_layers_and_sharing_from_c(self):
        self.up()
        done = harness.run(harness.TESTS / "c_calls", self.router)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        checks = json.loads(done.stdout)
        self.assertEqual([name for name, right in checks.items() if not right], [], done.stdout)
        self.assertGreater(len(checks), 10)


if __name__ == "__main__":
    harness.main()
