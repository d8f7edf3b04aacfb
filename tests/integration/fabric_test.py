"""Clusters over UCX on this host: TCP in place of a NIC. What only RDMA can do is tested in tests/softroce."""
import json
import os
import random
import signal
import subprocess

import harness
from harness import Case, alive, listeners, run, wait_for

UCX = ("--transport", "ucx", "--fabric", "127.0.0.1:0")


class Fabric(Case):
    def replay(self, requests, *flags):
        return self.cistern("replay", self.trace(requests), "--bytes-per-block", "64K", "--verify", "--transport", "ucx", *flags)

    def test_F28_stores_and_reads_every_byte_and_says_which_way(self):
        self.up(*UCX)
        cold = self.replay(200)
        self.assertEqual((cold["wrong_parts"], cold["failed_parts"], cold["late_calls"]), (0, 0, 0), cold)
        warm = self.replay(200)
        self.assertEqual((warm["wrong_parts"], warm["failed_parts"], warm["verified_parts"]), (0, 0, warm["blocks"]), warm)
        mine = [row for row in self.cistern("peers", "--transport", "ucx")["peers"] if row["from"] == "client"]
        self.assertEqual({row["transport"] for row in mine}, {"ucx"}, mine)
        for row in mine:
            self.assertIn("tcp/", row["device"])
            self.assertIn("no RDMA on this connection", row["why"])
        client = self.client("loop", "--transport", "ucx", "--blocks", 4)
        client.next("fetch", good=lambda line: line["ok"] == 4)
        nodes = self.cistern("status")["nodes"]
        self.assertEqual({peer["transport"] for node in nodes for peer in node["peers"]} - {"socket", "map"}, {"ucx"}, nodes)
        self.assertGreater(self.node_counters()["peer_transport_ucx"], 0)

    def test_ucx_to_nodes_without_a_fabric_is_refused_and_not_a_miss(self):
        self.up(nodes=1)
        done = run(harness.BIN / "cistern", "replay", self.trace(2), "--transport", "ucx", "--router", self.router)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        self.assertIn("start nodes with --fabric HOST:PORT", done.stderr)

    def test_auto_takes_the_fabric_only_where_there_is_no_map(self):
        self.up("--fabric", "127.0.0.1:0", nodes=1)
        for flags, path in (((), "map"), (("--fabric", "127.0.0.1"), "map"), (("--transport", "ucx"), "ucx")):
            rows = [row for row in self.cistern("peers", *flags)["peers"] if row["from"] == "client"]
            self.assertEqual([row["path"] for row in rows], [path], rows)

    def test_a_program_found_by_path_has_its_module(self):
        self.up(*UCX, nodes=1)
        # Not a file of that name in the current folder, either: that may be anybody's.
        done = run("cistern", "peers", "--transport", "ucx", "--router", self.router, "--json",
                   env={"PATH": f"{harness.BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done)
        rows = [row for row in json.loads(done.stdout)["peers"] if row["from"] == "client"]
        self.assertEqual([row["path"] for row in rows], ["ucx"], done)

    def test_nothing_listens_without_fabric(self):
        self.up(nodes=1)
        without = listeners(self.node_pids["node-1"])
        self.assertEqual(len(without), 1, without)
        rows = [row for row in self.cistern("peers", "--transport", "ucx")["peers"] if row["from"] == "client"]
        self.assertIn("offers no address", rows[0]["why"])

    def test_F28_require_rdma_refuses_to_start_and_names_what_is_missing(self):
        done = run(harness.BIN / "cistern", "up", "--dir", self.folder / "c", "--router", self.router, "--detach", "--nodes", 1,
                   "--ram", "16M", *UCX, "--fabric-transports", "tcp", "--require-rdma")
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("missing: ", done.stderr)

    def test_an_address_of_no_device_is_refused_at_start(self):
        done = run(harness.BIN / "cistern", "up", "--dir", self.folder / "c", "--router", self.router, "--detach", "--nodes", 1,
                   "--ram", "16M", "--transport", "ucx", "--fabric", "192.0.2.1:0")
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("it has to be an address of a fabric device of this machine", done.stderr)

    def test_a_client_with_a_wrong_address_misses_and_says_why(self):
        self.up(*UCX, nodes=1)
        rows = [row for row in self.cistern("peers", "--transport", "ucx", "--fabric", "192.0.2.1")["peers"] if row["from"] == "client"]
        self.assertEqual([row["path"] for row in rows], ["down"], rows)
        self.assertTrue(rows[0]["why"], rows)
        out = self.cistern("replay", self.trace(20), "--bytes-per-block", "64K", "--verify", "--transport", "ucx", "--fabric", "192.0.2.1")
        self.assertEqual((out["verified_parts"], out["wrong_parts"], out["late_calls"]), (0, 0, 0), out)
        self.assertTrue(out["reasons"], out)

    def test_F25_clients_killed_in_mid_read_leave_the_node_running(self):
        self.up(*UCX, nodes=1)
        pid = self.node_pids["node-1"]
        for seed in range(8):
            client = self.client("loop", "--transport", "ucx", "--blocks", 32, "--part", 1 << 20, "--seed", seed, "--deadline-ms", 5000)
            client.next("fetch", good=lambda line: line["ok"] == 32)
            self.kill(client.process.pid)
            client.process.wait()
            self.assertTrue(alive(pid), "a client's death ended the node")
        for name in ("leases_live", "puts_live", "payload_holds", "peer_transport_ucx"):
            wait_for(lambda: self.node_counters().get(name, 0) == 0, f"{name} to be 0 when all clients are gone", 60)
        self.assertEqual(self.replay(50)["wrong_parts"], 0)

    def test_F58_clients_killed_while_they_connect_leave_the_node_running(self):
        self.up(*UCX, nodes=1)
        rng = random.Random(58)
        for _ in range(12):
            clients = [self.client("loop", "--transport", "ucx", "--blocks", 1) for _ in range(4)]
            for client in clients:
                try:
                    client.process.wait(rng.uniform(0, .1))
                except subprocess.TimeoutExpired:
                    pass
                self.kill(client.process.pid)
                client.process.wait()
            self.assertTrue(alive(self.node_pids["node-1"]), "a client's death ended the node")
        self.assertEqual(self.replay(20)["wrong_parts"], 0)
        self.assertGreater(self.node_counters()["ucx_held_fds"], 0, "UCX in the node goes by its own ucs_close_fd")

    def midway(self, break_it):
        self.up(*UCX)
        trace = self.trace(1500, seed=2, turns=8)
        replay = self.start_cistern("replay", trace, "--bytes-per-block", "16K", "--verify", "--transport", "ucx")
        wait_for(lambda: self.node_counters().get("put_bytes_total", 0) > 10 << 20, "the replay to be under way")
        break_it()
        out = self.finish(replay)
        self.assertEqual((out["wrong_parts"], out["late_calls"], out["requests"]), (0, 0, 1500), out)

    def test_F48_kill_9_of_a_node(self):
        self.midway(lambda: self.kill(self.node_pids["node-1"]))

    def test_F27_stop_and_return_of_a_node(self):
        self.midway(lambda: self.kill(self.node_pids["node-2"], signal.SIGSTOP))
        self.kill(self.node_pids["node-2"], signal.SIGCONT)
        # Whole again: a replay over rebuilt connections hits everything.
        def whole():
            out = self.replay(60)
            self.assertEqual(out["wrong_parts"], 0)
            return out["hit_blocks"] == out["blocks"]
        wait_for(whole, "both nodes to serve over the fabric again", 60)


if __name__ == "__main__":
    harness.main()
