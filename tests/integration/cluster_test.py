"""Clusters of real processes: bytes end to end, and what happens to calls when processes die, stop and come back."""
import json, os, pathlib, shutil, signal, subprocess, time, unittest

import harness
from harness import Case, run, wait_for


class EndToEnd(Case):
    def replay(self, transport):
        self.up()
        trace = self.trace(300)
        cold = self.cistern("replay", trace, "--bytes-per-block", "16K", "--verify", "--transport", transport)
        self.assertEqual((cold["wrong_parts"], cold["failed_parts"], cold["late_calls"]), (0, 0, 0))
        self.assertEqual(cold["hit_blocks"], cold["ideal_hit_blocks"])
        warm = self.cistern("replay", trace, "--bytes-per-block", "16K", "--verify", "--transport", transport)
        self.assertEqual((warm["wrong_parts"], warm["failed_parts"]), (0, 0))
        self.assertEqual(warm["hit_blocks"], warm["blocks"])
        self.assertEqual(warm["verified_parts"], warm["blocks"])
        paths = {peer["transport"] for peer in self.cistern("peers", "--transport", transport)["peers"]}
        self.assertIn(transport, paths)

    def test_socket_stores_and_reads_every_byte(self):
        self.replay("socket")

    def test_map_stores_and_reads_every_byte(self):
        self.replay("map")

    def test_F14_small_nodes_evict_and_leave_nothing_behind(self):
        self.ram = "8M"
        self.up()
        out = self.cistern("replay", self.trace(600, seed=3), "--bytes-per-block", "64K", "--verify")
        self.assertEqual((out["wrong_parts"], out["failed_parts"], out["late_calls"]), (0, 0, 0))
        self.assertGreater(self.node_counters()["evicted_parts_total"], 0)
        for name in ("leases_live", "puts_live", "payload_holds", "leased_parts", "doomed_parts", "pinned_bytes"):
            wait_for(lambda: self.node_counters()[name] == 0, f"{name} to be 0 when all clients are gone", 40)


class Trouble(Case):
    """A replay runs; something breaks in its middle; it ends by itself, with right bytes and no late call."""

    def midway(self, break_it, flags=()):
        self.up()
        trace = self.trace(3000, seed=2, turns=8)
        replay = self.start_cistern("replay", trace, "--bytes-per-block", "16K", "--verify", *flags)
        # Midway: enough has been stored, and the replay is still at it.
        wait_for(lambda: self.node_counters().get("put_bytes_total", 0) > 20 << 20, "the replay to be under way")
        self.assertIsNone(replay.poll(), "the replay ended before anything broke")
        break_it()
        out = self.finish(replay)
        self.assertEqual((out["wrong_parts"], out["late_calls"]), (0, 0), out)
        self.assertEqual(out["requests"], 3000)
        return trace

    def hits_again(self, trace):
        """Everybody is back: what is replayed twice hits the second time."""
        self.up_again()
        self.cistern("replay", trace, "--bytes-per-block", "16K", "--requests", 200)
        again = self.cistern("replay", trace, "--bytes-per-block", "16K", "--requests", 200, "--verify")
        self.assertEqual(again["wrong_parts"], 0)
        self.assertEqual(again["hit_blocks"], again["blocks"])

    def test_kill_9_of_a_node(self):
        trace = self.midway(lambda: self.kill(self.node_pids["node-1"]))
        self.hits_again(trace)

    def test_kill_9_of_a_node_over_sockets(self):
        trace = self.midway(lambda: self.kill(self.node_pids["node-1"]), ("--transport", "socket"))
        self.hits_again(trace)

    def test_kill_9_of_the_router(self):
        trace = self.midway(lambda: self.kill(self.cluster["router"]["pid"]))
        self.hits_again(trace)

    def test_F23_stop_of_a_node(self):
        trace = self.midway(lambda: self.kill(self.node_pids["node-2"], signal.SIGSTOP))
        self.kill(self.node_pids["node-2"], signal.SIGCONT)
        self.hits_again(trace)


class Deadlines(Case):
    def held(self, transport):
        self.up(nodes=1)
        pid = self.node_pids["node-1"]
        deadline_ms = 400
        client = self.client("held", "--transport", transport, "--deadline-ms", deadline_ms, "--blocks", 32, "--part", 1 << 20)
        at, warm = client.next("fetch")
        self.assertEqual((warm["ok"], warm["wrong"]), (32, 0), warm)
        self.kill(pid, signal.SIGSTOP)
        for _ in range(3):  # The first finds a live connection, later ones perhaps an open breaker.
            client.say("go")
            at, stopped = client.next("fetch", at)
            # Every page has its result. None is OK: a read begins with a plan, and nobody is there to grant one.
            self.assertEqual((sum(stopped["pages"].values()), stopped["ok"], stopped["wrong"]), (32, 0, 0), stopped)
            self.assertLessEqual(stopped["ms"], deadline_ms * 1.1, stopped)
            client.say("check")
            at, check = client.next("check", at)
            self.assertTrue(check["untouched"])
        self.kill(pid, signal.SIGCONT)
        # The node wakes up and sends what it owed. None of it may land; five seconds are F23's own figure.
        end = time.monotonic() + 5
        while time.monotonic() < end:
            client.say("check")
            at, check = client.next("check", at)
            self.assertTrue(check["untouched"], "memory of an ended call was written")
            time.sleep(0.1)
        def fetch_again():
            nonlocal at
            client.say("go")
            at, line = client.next("fetch", at)
            self.assertEqual(line["wrong"], 0)
            return line["ok"] == 32
        wait_for(fetch_again, "hits after SIGCONT", 30)

    def test_F23_socket_get_from_a_stopped_node_ends_in_time(self):
        self.held("socket")

    def test_F23_map_get_from_a_stopped_node_ends_in_time(self):
        self.held("map")

    def test_F24_hits_resume_after_each_restart(self):
        self.up(nodes=1)
        client = self.client("loop", "--deadline-ms", 500)
        at = 0
        for _ in range(3):
            at, _line = client.next("fetch", at, good=lambda line: line["ok"] == line["asked"])
            self.kill(self.node_pids["node-1"])
            at, _line = client.next("fetch", len(client.lines), good=lambda line: line["ok"] == 0)
            self.up_again()
            at = len(client.lines)
        client.next("fetch", at, good=lambda line: line["ok"] == line["asked"])
        for line in client.events("fetch"):
            self.assertEqual(line["wrong"], 0)
            self.assertLessEqual(line["ms"], 550, line)
        for node in self.cistern("status")["nodes"]:
            self.assertGreater(node["incarnation"], 3)


class Quotas(Case):
    def test_F22_quotas_are_set_and_told(self):
        self.up()
        self.cistern("quota", "set", "team-a", "--bytes", "8M", "--when-full", "reject")
        rows = [row for row in self.cistern("quota", "list")["quotas"] if row["tenant"] == "team-a"]
        self.assertEqual([(row["node"], row["quota_bytes"], row["when_full"]) for row in rows],
                         [("node-1", 8 << 20, "reject"), ("node-2", 8 << 20, "reject")])


class Writers(Case):
    def test_F19_writer_killed_after_its_offer_leaves_nothing(self):
        self.up(nodes=1)
        offer = subprocess.Popen([harness.TESTS / "wire_probe", "offer", self.router, "100"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(offer.wait)
        self.addCleanup(offer.kill)
        self.assertEqual(json.loads(offer.stdout.readline())["slots"], 100)
        self.assertEqual(self.node_counters()["puts_live"], 100)
        offer.kill()
        # Its deadline was 30 s; the space has to be back as soon as the connection is.
        wait_for(lambda: self.node_counters()["puts_live"] == 0, "the dead writer's slots to be free", 5)
        self.assertEqual(self.node_counters()["puts_abandoned_total"], 100)
        offer.stdout.close()

    def test_F20_64_writers_of_the_same_keys(self):
        self.up()
        processes = [subprocess.Popen([harness.TESTS / "test_client", "writers", "--router", self.router, "--threads", "16",
                                       "--keys", "20", "--rounds", "4", "--part", "16384"], stdout=subprocess.PIPE, text=True)
                     for _ in range(4)]
        results = [json.loads(process.communicate(timeout=harness.PATIENCE)[0]) for process in processes]
        for result in results:
            self.assertEqual((result["other"], result["missing"], result["wrong"]), (0, 0, 0), results)
        self.assertEqual(sum(result["ok"] + result["exists"] for result in results), 4 * 16 * 20 * 4 * 4)
        # One copy of each of 20 keys with 4 blocks. The first blocks of all chains differ, so nothing is shared.
        parts = sum(tier["parts"] for node in self.cistern("status")["nodes"] for tier in node["tiers"])
        self.assertEqual(parts, 80)
        self.assertEqual(sum(result["ok"] for result in results), 80)

    def test_F29_512_batch_calls_at_once_from_8_processes(self):
        self.up()
        processes = [subprocess.Popen([harness.TESTS / "test_client", "batch", "--router", self.router, "--calls", "512",
                                       "--rounds", "2", "--blocks", "4", "--part", "4096"], stdout=subprocess.PIPE, text=True)
                     for _ in range(8)]
        for process in processes:
            result = json.loads(process.communicate(timeout=harness.PATIENCE)[0])
            self.assertEqual(process.returncode, 0)
            self.assertEqual((result["ended"], result["wrong"]), (1024, 0), result)
            self.assertLessEqual(set(result["pages"]), {"OK", "EXISTS", "MISS"}, result)
        for pid in self.node_pids.values():
            self.assertTrue(harness.alive(pid))


class Bounds(Case):
    def loads(self, transport):
        self.up(nodes=1)
        pid = self.node_pids["node-1"]
        idle = harness.shared_mappings(pid)
        done = run(harness.TESTS / "many_buffers", "--router", self.router, "--transport", transport, "--loads", 100_000)
        self.assertEqual(done.returncode, 0, done)
        out = json.loads(done.stdout)
        self.assertEqual((out["loads"], out["ok"], out["wrong"]), (100_000, 100_000, 0))
        for what in ("regions", "bytes"):
            # As much as the first load needed (window and arenas), and no more for all that followed.
            self.assertEqual(out[what]["most"], out[what]["first"], out)
            self.assertEqual(out[what]["after"], out[what]["before"], out)
        if transport == "map":
            self.assertGreater(out["regions"]["first"], out["regions"]["before"], "nothing was mapped: not the path that was meant")
        # Not more than before; less when the client of `up` had not been let go of yet.
        wait_for(lambda: all(now <= then for now, then in zip(harness.shared_mappings(pid), idle)), "the node to let go of the client's memory")

    def test_F59_100000_loads_into_distinct_buffers_over_map(self):
        self.loads("map")

    def test_F59_100000_loads_into_distinct_buffers_over_sockets(self):
        self.loads("socket")


class TwoOfOneId(Case):
    nodes = 1

    def node(self):
        return self.cistern("status")["nodes"][0]

    def test_a_copied_folder_is_refused_and_a_quick_restart_is_not(self):
        self.up()
        before, data = self.node(), pathlib.Path(self.cluster["nodes"][0]["data_dir"])
        copy = data.parent / "copy"
        shutil.copytree(data, copy)
        refused = run(harness.BIN / "cistern-node", "--data-dir", copy, "--router", self.router, "--listen", "127.0.0.1:0", "--ram", "16M")
        self.assertEqual(refused.returncode, 2, refused)
        last = refused.stderr.splitlines()[-1]
        for part in ("node-1 is served by another process", before["address"], "--node-id"):
            self.assertIn(part, last)
        now = self.node()
        self.assertEqual((now["incarnation"], now["address"], now["state"]), (before["incarnation"], before["address"], "active"))
        # On its own folder, where the router may still take the killed process for a live one.
        self.kill(self.node_pids["node-1"])
        self.up_again()
        self.assertGreater(self.node()["incarnation"], before["incarnation"])


class Drain(Case):
    def parts(self):
        return {node["id"]: sum(tier["parts"] for tier in node["tiers"]) for node in self.cistern("status")["nodes"]}

    def states(self):
        return {node["id"]: node["state"] for node in self.cistern("status")["nodes"]}

    def test_a_drained_node_is_read_and_gets_nothing_new(self):
        self.up()
        old, new = self.trace(200), self.trace(200, seed=2)
        self.cistern("replay", old, "--bytes-per-block", "16K")
        before = self.parts()
        self.assertGreater(before["node-1"], 50)
        self.assertEqual(self.cistern("drain", "node-1")["state"], "draining")
        self.assertEqual(self.states(), {"node-1": "draining", "node-2": "active"})
        again = self.cistern("replay", old, "--bytes-per-block", "16K", "--verify")
        self.assertEqual((again["hit_blocks"], again["wrong_parts"], again["failed_parts"]), (again["blocks"], 0, 0), again)
        self.cistern("replay", new, "--bytes-per-block", "64K")  # Other blocks: their size is in the layout's id.
        after = self.parts()
        self.assertEqual(after["node-1"], before["node-1"])
        self.assertGreater(after["node-2"], before["node-2"] + 100)
        self.kill(self.node_pids["node-1"])
        self.up_again()
        self.assertEqual(self.states(), {"node-1": "draining", "node-2": "active"})
        last = run(harness.BIN / "cistern", "drain", "node-2", "--router", self.router)
        self.assertEqual((last.returncode, len(last.stderr.splitlines())), (2, 1), last)
        self.assertIn("no other node is active", last.stderr)
        self.assertEqual(self.cistern("drain", "node-1", "--undo")["state"], "active")
        self.assertEqual(self.cistern("drain", "node-9", codes=(2,)).keys(), {"error"})
        self.cistern("replay", old, "--bytes-per-block", "32K")
        self.assertGreater(self.parts()["node-1"], 20)


class Hints(Case):
    def router_counters(self):
        return self.cistern("status")["router"]["counters"]

    def test_F32_the_router_is_told_of_a_dead_node(self):
        self.up()
        client = self.client("loop", "--deadline-ms", 300, "--blocks", 64)
        at, _line = client.next("fetch", good=lambda line: line["ok"] == line["asked"])
        self.kill(self.node_pids["node-1"])
        wait_for(lambda: self.router_counters().get("peer_hints_taken_total", 0) > 0, "the router to have been told")
        states = lambda: {node["id"]: node["state"] for node in self.cistern("status")["nodes"]}
        wait_for(lambda: states() == {"node-1": "gone", "node-2": "active"}, "node-1 to leave the map")
        self.assertEqual(self.router_counters().get("nodes_expired_by_hint_total"), 1, "it took the whole time of a silent node")


if __name__ == "__main__":
    harness.main()
