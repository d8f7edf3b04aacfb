"""Histories: several client processes while nodes, the router and clients are killed, stopped and cut off, judged by checker.py.

histories_test.py BIN_DIR TESTS_DIR [unittest flags]. CISTERN_HISTORY_SEED and CISTERN_HISTORY_ROUNDS choose another and a longer run."""
import json, os, pathlib, random, signal, sys, unittest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "integration"))
import harness
from checker import check, tally
from harness import Case, Lines, wait_for
from spaces import SpacesCase

SEED = int(os.environ.get("CISTERN_HISTORY_SEED", "1"))
ROUNDS = int(os.environ.get("CISTERN_HISTORY_ROUNDS", "12"))
CALLS_A_ROUND = 60  # Of each client: a fault has that many calls to show itself.
DEADLINE_MS = 500
SLACK_NS = (10_000 if harness.instrumented() else 2_000) * 1_000_000  # A busy machine's scheduler, not the client.


class Clients:
    """Client processes whose events make one history; of a Case."""
    inside = ()

    def setUp(self):
        super().setUp()
        self.rng, self.epoch, self.numbers, self.all, self.killed = random.Random(SEED), 1, 0, {}, set()
        print(f"CISTERN_HISTORY_SEED={SEED} CISTERN_HISTORY_ROUNDS={ROUNDS}", flush=True)

    def start_client(self):
        self.numbers += 1
        lines = Lines(harness.TESTS / "history_client", "--router", self.router, "--client", self.numbers, "--seed", SEED, "--chains", 400,
                      "--deadline-ms", DEADLINE_MS, "--transport", ("auto", "socket")[self.numbers % 2],
                      prefix=self.inside)
        self.addCleanup(lines.stop)
        lines.say(f"epoch {self.epoch}")
        self.all[self.numbers] = lines
        return self.numbers

    def running(self):
        return {number: lines for number, lines in self.all.items() if number not in self.killed}

    def more_calls(self):
        """Every client has ended so many calls from here on; nobody waits for hits."""
        marks = {number: len(lines.lines) for number, lines in self.running().items()}
        for number, mark in marks.items():
            lines = self.all[number]
            wait_for(lambda: len(lines.lines) >= mark + 2 * CALLS_A_ROUND, f"client {number} to go on")

    def judge(self, done):
        for lines in self.running().values():
            lines.stop()
            self.assertEqual(lines.process.returncode, 0)
        for number in self.killed:
            self.all[number].reader.join(30)
        events = [event for lines in self.all.values() for _, event in lines.lines]
        violations = check(events, self.killed, SLACK_NS)
        seen = tally(events)
        if violations:
            kept = pathlib.Path(os.environ.get("CISTERN_HISTORY_KEEP", self.folder.parent)) / f"cistern-history-{os.getpid()}.jsonl"
            kept.write_text("".join(json.dumps(event) + "\n" for event in events))
            self.fail(f"{len(violations)} violations, {violations[:5]}; faults {done}; seed {SEED}; history {kept}")
        # How many there are is the machine's business; none of a kind, and this has judged nothing.
        self.assertGreater(seen["hit_pages"], 0, seen)
        self.assertGreater(seen["other_pages"], 0, seen)
        print(f"{len(done)} faults, {sum(seen[kind] for kind in ('store', 'fetch', 'plan', 'load'))} calls, {seen['hit_pages']} pages hit", flush=True)


class Faults(Clients, Case):
    nodes, ram = 3, "32M"  # Little enough that pages are forgotten all the time.

    # Faults. Each begins, has its calls, and is mended; names are what a failure prints.
    def kill_node(self):
        self.kill(self.node_pids[self.rng.choice(sorted(self.node_pids))])
        self.more_calls()
        self.up_again()

    def stop_node(self):
        pid = self.node_pids[self.rng.choice(sorted(self.node_pids))]
        self.kill(pid, signal.SIGSTOP)
        self.more_calls()
        self.kill(pid, signal.SIGCONT)

    def kill_router(self):
        self.kill(self.cluster["router"]["pid"])
        self.more_calls()
        self.up_again()

    def kill_client(self):
        number = self.rng.choice(sorted(self.running()))
        self.killed.add(number)
        self.all[number].process.kill()
        self.all[number].process.wait()
        self.start_client()

    def new_weights(self):
        self.epoch += 1
        for lines in self.running().values():
            lines.say(f"epoch {self.epoch}")

    def test_hits_are_right_and_calls_end_under_faults(self):
        self.up("--nvme", "256M") if self.rng.random() < .5 else self.up()
        for _ in range(3):
            self.start_client()
        faults = [self.kill_node, self.stop_node, self.kill_router, self.kill_client, self.new_weights]
        done = []
        for number in range(ROUNDS):
            self.more_calls()
            fault = faults[number] if number < len(faults) else self.rng.choice(faults)  # All of them at least once.
            done.append(fault.__name__)
            fault()
        self.more_calls()
        self.judge(done)


class Partitions(Clients, SpacesCase):
    def test_hits_are_right_and_calls_end_while_the_link_is_cut(self):
        for _ in range(2):
            self.start_client()
        cuts = max(2, ROUNDS // 4)
        for _ in range(cuts):
            self.more_calls()
            self.ip("link", "set", self.link, "down")
            self.more_calls()
            self.ip("link", "set", self.link, "up")
            mark = {number: len(lines.lines) for number, lines in self.running().items()}
            for number, at in mark.items():  # Hits come back by themselves.
                self.all[number].next("return", at, good=lambda line: any(result == "OK" for result, _ in line["pages"]))
        self.judge(["cut"] * cuts)


if __name__ == "__main__":
    harness.main()
