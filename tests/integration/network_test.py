"""Who may talk to a cluster, from where, and what a cut link does: strangers, other releases, network namespaces."""
import contextlib, json, os, secrets, socket, subprocess, unittest

import harness
from harness import Case, alive, listeners, run
from spaces import SpacesCase


class Strangers(Case):
    def all_listeners(self):
        pids = [self.cluster["router"]["pid"], *self.node_pids.values()]
        return {pid: listeners(pid) for pid in pids}

    def test_S04_everything_listens_on_loopback_by_default(self):
        self.up("--shards", 2)
        for pid, found in self.all_listeners().items():
            self.assertTrue(found, f"process {pid} listens nowhere")
            for address, port in found:
                self.assertIn(address, ("127.0.0.1", "::1", "::ffff:127.0.0.1"), f"process {pid} listens on {address}:{port}")

    def test_S03_S13_strangers_are_cut_off_before_anything_is_handled(self):
        self.up()
        frame_of_a_tebibyte = bytes.fromhex("43535431") + bytes([1, 12]) + bytes(10) + b"\xff" * 4 + bytes(4) + b"\xff" * 16
        greetings = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(4096), secrets.token_bytes(4096), frame_of_a_tebibyte,
                     b"\x80\x04\x95" + b"pickle" * 50]
        before = {pid: self.memory(pid) for pid in self.node_pids.values()}
        for pid in self.node_pids.values():
            for _address, port in listeners(pid):
                for greeting in greetings:
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                        with contextlib.suppress(ConnectionError):
                            stranger.sendall(greeting)
                            # A refusal may be said first; then the connection ends by the node, well before a time-out.
                            while stranger.recv(65536):
                                pass
        for _address, port in listeners(self.cluster["router"]["pid"]):
            for greeting in greetings:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                    stranger.sendall(greeting)
        counters = self.node_counters()
        self.assertEqual(counters["lookup_blocks_total"], 0)
        for pid in [self.cluster["router"]["pid"], *self.node_pids.values()]:
            self.assertTrue(alive(pid))
        for pid, bytes_before in before.items():
            self.assertLess(self.memory(pid) - bytes_before, 16 << 20)
        out = self.cistern("replay", self.trace(50), "--bytes-per-block", "16K", "--verify")
        self.assertEqual((out["wrong_parts"], out["failed_parts"]), (0, 0))

    def test_F29_a_million_broken_frames_at_every_port(self):
        """Nobody dies, nobody takes memory for what was only announced, connections are closed and counted.

        The router's port speaks gRPC, not our frames, and answers each call: it gets a tenth."""
        self.up(nodes=1)
        frames = 20_000 if harness.instrumented() else 1_000_000
        ports = {"tcp": frames, "unix": frames, "grpc": max(frames // 10, 20_000)}  # Few reach a method.
        pids = {"grpc": self.cluster["router"]["pid"], "tcp": self.node_pids["node-1"]}
        before = {port: self.memory(pid) for port, pid in pids.items()}
        floods = {port: subprocess.Popen([harness.TESTS / "wire_flood", self.router, port, str(count), "29"], stdout=subprocess.PIPE)
                  for port, count in ports.items()}
        for port, flood in floods.items():
            out, _ = flood.communicate(timeout=600)
            self.assertEqual(flood.returncode, 0, f"{port}, seed 29")
            self.assertEqual(json.loads(out)["frames"], ports[port])
            self.assertGreaterEqual(json.loads(out)["connections"], ports[port] / 512)
        for port, pid in pids.items():
            self.assertTrue(alive(pid), port)
            if not harness.instrumented():
                self.assertLess(self.memory(pid) - before[port], 64 << 20, port)
        self.assertGreater(self.node_counters()["bad_frames_total"], frames / 1000)
        self.assertGreater(self.cistern("status")["router"]["counters"]["bad_requests_total"], 0)
        out = self.cistern("replay", self.trace(50), "--bytes-per-block", "16K", "--verify")
        self.assertEqual((out["wrong_parts"], out["failed_parts"]), (0, 0))

    def memory(self, pid):
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def probe(self, *words):
        done = run(harness.TESTS / "wire_probe", "hello", *words)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def test_F61_other_versions_and_algorithms_are_refused_with_both_values(self):
        self.up(nodes=1)
        address = "tcp:" + self.cluster["nodes"][0]["address"]
        version = self.probe(address, "9", "-", "00" * 16)
        self.assertIn("9", version["refused"])
        self.assertIn("1", version["refused"].replace("9", ""))
        algorithm = self.probe(address, "1", "blake3/9", "00" * 16)
        self.assertIn("blake3/9", algorithm["refused"])
        self.assertIn("sha256-frame/1+xxh3", algorithm["refused"])
        counters = self.node_counters()
        self.assertEqual((counters["version_refused_total"], counters["algorithm_refused_total"]), (1, 1), counters)

    def test_S03_a_made_up_ticket_is_refused(self):
        self.up(nodes=1)
        address = "tcp:" + self.cluster["nodes"][0]["address"]
        self.assertIn("cluster", self.probe(address, "1", "-", "00" * 16)["refused"])


class Flags(Case):
    def test_F65_wrong_flags_end_with_2_and_one_line(self):
        for words in (["cistern-node", "--data-dir", self.folder / "n", "--ram", "lots"], ["cistern-node"],
                      ["cistern-router", "--frobnicate"], ["cistern-router", "--data-dir", self.folder / "r"],
                      ["cistern-node", "--data-dir", self.folder / "n", "--listen", "nowhere"], ["cistern", "--frobnicate"]):
            done = run(harness.BIN / words[0], *words[1:])
            self.assertEqual(done.returncode, 2, (words, done))
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, (words, done.stderr))


class Namespaces(SpacesCase):
    def test_bytes_cross_the_link_by_socket_and_are_right(self):
        trace = self.trace(100)
        for _ in range(2):
            done = run(harness.BIN / "cistern", "replay", trace, "--bytes-per-block", "64K", "--verify", "--router", self.router,
                       "--json", prefix=self.inside)
            self.assertEqual(done.returncode, 0, done)
            out = json.loads(done.stdout)
            self.assertEqual((out["wrong_parts"], out["failed_parts"], out["late_calls"]), (0, 0, 0), out)
        self.assertEqual(out["hit_blocks"], out["blocks"])
        # Abstract sockets and memfds do not cross namespaces: nobody may believe that he is on the same host.
        peers = json.loads(run(harness.BIN / "cistern", "peers", "--router", self.router, "--json", prefix=self.inside).stdout)
        mine = [peer for peer in peers["peers"] if peer["from"].startswith("client")] or peers["peers"]
        self.assertTrue(any(peer["transport"] == "socket" for peer in mine), peers)

    def test_F23_link_down_costs_deadlines_and_link_up_brings_hits_back(self):
        deadline_ms = 500
        client = self.client("loop", "--deadline-ms", deadline_ms, "--blocks", 8, "--part", 262144, prefix=self.inside)
        at, _line = client.next("fetch", good=lambda line: line["ok"] == line["asked"])
        for _ in range(2):
            self.ip("link", "set", self.link, "down")
            at, _line = client.next("fetch", len(client.lines), good=lambda line: line["ok"] == 0)
            # Still down for a while: breakers and negative caches have to live through many calls.
            at, _line = client.next("fetch", at + 20)
            self.ip("link", "set", self.link, "up")
            at, _line = client.next("fetch", at, good=lambda line: line["ok"] == line["asked"], seconds=60)
        for line in client.events("fetch") + client.events("store"):
            self.assertEqual(line.get("wrong", 0), 0)
            self.assertLessEqual(line["ms"], deadline_ms * 1.1, line)


if __name__ == "__main__":
    harness.main()
