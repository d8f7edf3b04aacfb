"""The NVMe tier of real nodes: what survives which end, crash points, damage, a full disk. docs/operations.md says the same in words."""
import contextlib, json, os, pathlib, random, subprocess, time, unittest

import harness
from harness import Case, clean_env, run, wait_for

CRASH_POINTS = 12  # cache_node/disk/crash_point.h
BLOCK = "16K"


class DiskCase(Case):
    nodes, ram = 1, "32M"

    def up_disk(self, *flags):
        return self.up("--nvme", "512M", *flags)

    def node(self):
        return self.cistern("status")["nodes"][0]

    def durable(self):
        return sum(tier["parts"] for tier in self.node()["tiers"] if tier["tier"] == "nvme")

    def counter(self, name):
        return self.node()["counters"].get(name, 0)

    def replay(self, trace, **flags):
        words = [word for key, value in ({"bytes-per-block": BLOCK} | flags).items() for word in (f"--{key}", value)]
        out = self.cistern("replay", trace, "--verify", *words)
        self.assertEqual((out["wrong_parts"], out["late_calls"]), (0, 0), out)
        return out

    def unique(self, trace):
        return len({i for line in trace.read_text().splitlines() for i in json.loads(line)["hash_ids"]})

    def stored(self, requests=600, seed=11):
        """A trace whose blocks are all durable: more than twice what RAM holds."""
        trace = self.trace(requests, seed=seed)
        self.replay(trace)
        wait_for(lambda: self.durable() >= self.unique(trace), "all blocks to be durable")
        return trace

    def data_dir(self):
        return pathlib.Path(self.cluster["nodes"][0]["data_dir"])

    def fsck(self, codes=(0,)):
        done = run(harness.BIN / "cistern", "fsck", self.data_dir(), "--json")
        self.assertIn(done.returncode, codes, done)
        return json.loads(done.stdout)

    def all_hit(self, trace):
        out = self.replay(trace)
        self.assertEqual(out["hit_blocks"], out["blocks"], out)


class Survives(DiskCase):
    def test_F35_write_through_outlives_kill_9_of_node_and_router(self):
        self.up_disk()
        trace = self.stored()
        parts = self.durable()
        live = self.fsck()
        self.assertEqual((live["online"], live["clean"]), (True, True), live)
        for pid in (self.node_pids["node-1"], self.cluster["router"]["pid"]):
            self.kill(pid)
        self.up_again()
        wait_for(lambda: self.durable() >= parts, "the durable parts to be back")
        self.all_hit(trace)
        self.down()
        report = self.fsck()
        self.assertEqual((report["clean"], report["problems"]), (True, []))
        self.assertGreaterEqual(report["parts"], parts)

    def test_F35_nodes_keep_their_blocks_when_the_router_loses_its_state(self):
        self.up_disk()
        trace = self.stored(200)
        parts = self.durable()
        self.down()
        state = pathlib.Path(self.cluster["dir"]) / "router" / "state"
        state.rename(state.with_name("away"))
        self.up_again()
        wait_for(lambda: self.durable() >= parts, "the durable parts to be back")
        self.all_hit(trace)

    def test_write_through_outlives_a_stop_in_good_order(self):
        self.up_disk()
        trace = self.stored(200)
        self.down()
        self.assertTrue(self.fsck()["clean"])
        self.up_again()
        wait_for(lambda: self.durable() >= self.unique(trace), "the durable parts to be back")
        self.all_hit(trace)

    def test_on_demotion_keeps_what_left_RAM_and_no_more(self):
        self.up_disk("--on-demotion")
        trace = self.trace(900, seed=12)
        self.replay(trace)
        self.all_hit(trace)
        wait_for(lambda: self.durable() > 0, "demoted parts to be durable")
        durable, unique = self.durable(), self.unique(trace)
        self.assertLess(durable, unique)
        self.down()
        self.up_again()
        wait_for(lambda: self.durable() >= durable, "the durable parts to be back")
        self.assertLess(self.replay(trace)["hit_blocks"], sum(len(json.loads(l)["hash_ids"]) for l in trace.read_text().splitlines()))

    def test_RAM_alone_is_gone_with_its_process(self):
        self.up()
        trace = self.trace(50)
        self.replay(trace)
        self.down()
        self.up_again()
        self.assertEqual(self.cistern("status")["nodes"][0]["tiers"][0]["parts"], 0)


    def test_F35_50000_parts_are_served_soon_after_a_kill(self):
        """Indexed within 5 s of the start of `up` where nothing else runs; here within PATIENCE, and the time is shown."""
        self.up("--nvme", "1G")
        trace = self.folder / "long.jsonl"  # Each block once: 400 prompts of 128 blocks.
        trace.write_text("".join(json.dumps(dict(timestamp=i, input_length=65_536, output_length=1, hash_ids=list(range(128 * i, 128 * i + 128)))) +
                                 "\n" for i in range(400)))
        self.replay(trace, **{"bytes-per-block": "4K"})
        wait_for(lambda: self.durable() >= self.unique(trace), "all blocks to be durable")
        self.kill(self.node_pids["node-1"])
        begin = time.monotonic()
        self.up_again()
        active = time.monotonic() - begin
        head = self.folder / "head.jsonl"
        head.write_text("\n".join(trace.read_text().splitlines()[:20]) + "\n")
        first = self.replay(head, **{"bytes-per-block": "4K"})
        self.assertEqual(first["wrong_parts"], 0)
        wait_for(lambda: self.durable() >= self.unique(trace), "the durable parts to be back")
        print(f"active after {active:.2f} s, first replay after {first['seconds']:.2f} s more, all indexed after "
              f"{time.monotonic() - begin:.2f} s, {self.durable()} parts", flush=True)
        self.assertEqual(self.counter("nvme_scan_left_extents"), 0)
        out = self.replay(trace, **{"bytes-per-block": "4K"})
        self.assertEqual(out["hit_blocks"], 51_200)


class Owner(DiskCase):
    def refused(self, *flags):
        done = run(harness.BIN / "cistern-node", "--listen", "127.0.0.1:0", *flags)
        said = [line for line in done.stderr.splitlines() if line.startswith("cistern-node:")]  # Beside the log.
        self.assertEqual((done.returncode, len(said)), (2, 1), done)
        return said[0]

    def test_F34_a_second_node_on_the_folder_is_told_the_owner(self):
        self.up_disk()
        said = self.refused("--data-dir", self.data_dir(), "--router", self.router, "--nvme", "512M")
        self.assertIn(str(self.node_pids["node-1"]), said)
        self.assertEqual(self.node()["state"], "active")

    def test_F34_a_folder_of_another_cluster_is_refused(self):
        self.up_disk()
        self.stored(50)
        self.down()
        before = {f.name: f.stat().st_mtime_ns for f in (self.data_dir() / "nvme").iterdir()}
        other = f"127.0.0.1:{harness.free_port()}"
        folder = self.folder / "other"
        self.addCleanup(run, harness.BIN / "cistern", "down", "--dir", folder)
        done = run(harness.BIN / "cistern", "up", "--dir", folder, "--router", other, "--nodes", "1", "--ram", "16M", "--detach", "--json")
        self.assertEqual(done.returncode, 0, done)
        said = self.refused("--data-dir", self.data_dir(), "--router", other, "--nvme", "512M", "--ram", "16M",
                            "--cluster-key", folder / "cluster.key")
        self.assertIn("cluster", said)
        self.assertEqual({f.name: f.stat().st_mtime_ns for f in (self.data_dir() / "nvme").iterdir()}, before)


class Ends(DiskCase):
    """Nodes that end at a numbered place of the write path, and start again on what they left."""

    def start_node(self, *flags):
        words = ["--data-dir", self.data_dir(), "--router", self.router, "--cluster-key", self.folder / "c" / "cluster.key",
                 "--id", "node-1", "--ram", "24M", "--nvme", "256M", *flags]
        log = open(self.folder / "node.log", "ab")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(harness.BIN / "cistern-node"), *map(str, words)], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, env=clean_env())
        self.addCleanup(process.kill)
        wait_for(lambda: process.poll() is not None or self.active(process), "the node to be active")
        return process

    def active(self, process):
        with contextlib.suppress(AssertionError, KeyError, IndexError):
            node = self.node()
            return node["state"] == "active" and not node["stale"] and any(t["tier"] == "nvme" for t in node["tiers"])
        return False

    def test_F33_crash_points(self):
        chance = random.Random(20260)
        rounds = int(os.environ.get("CRASH_ROUNDS", CRASH_POINTS))
        self.up()
        self.kill(self.node_pids["node-1"])
        crashed = 0
        for turn in range(rounds):
            point = turn % CRASH_POINTS + 1
            node = self.start_node("--crash-at", f"{point}:{chance.randrange(1, 4)}")
            before = self.durable() if node.poll() is None else 0
            # Enough for the log to be reclaimed, in round after round.
            replay = self.start_cistern("replay", self.trace(400, seed=100 + turn), "--bytes-per-block", "64K", "--verify")
            wait_for(lambda: node.poll() is not None or replay.poll() is not None, "an end")
            crashed += node.poll() is not None
            replay.kill()
            replay.communicate()
            node.kill()
            node.wait()
            again = self.start_node()
            wait_for(lambda: self.counter("nvme_scan_left_extents") == 0, "the scan")
            self.assertGreaterEqual(self.durable(), before if turn == 0 else 0)
            out = self.cistern("replay", self.trace(60, seed=100 + turn), "--bytes-per-block", "64K", "--verify")
            self.assertEqual(out["wrong_parts"], 0)
            again.terminate()
            self.assertEqual(again.wait(60), 0)
            report = self.fsck()
            self.assertTrue(report["clean"], (point, report))
        self.assertGreaterEqual(crashed, rounds // 2)


class Damage(DiskCase):
    def test_F37_flipped_bytes_everywhere(self):
        self.up_disk()
        trace = self.stored()
        self.down()
        chance = random.Random(20261)
        files = sorted(f for f in self.data_dir().rglob("*") if f.is_file() and f.stat().st_size)
        places = chance.choices(files, [f.stat().st_size for f in files], k=70) + chance.choices(files, k=30)
        for file in places:
            with open(file, "r+b") as f:
                at = chance.randrange(file.stat().st_size)
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1 << chance.randrange(8)]))
        self.assertGreater(self.fsck(codes=(1,))["problem_count"], 0)
        self.assertIn("docs/operations.md", run(harness.BIN / "cistern", "fsck", self.data_dir()).stdout)
        self.up_again()
        self.replay(trace)
        out = self.replay(trace)
        self.assertGreater(out["hit_ratio"], 0.99)

    def test_F10_full_disk_on_a_loop_device(self):
        image, mount = self.folder / "disk.img", self.folder / "mnt"
        mount.mkdir()
        with open(image, "wb") as f:
            f.truncate(400 << 20)
        made = os.geteuid() == 0 and run("mkfs.ext4", "-q", image).returncode == 0 and run("mount", "-o", "loop", image, mount).returncode == 0
        if not made:
            self.skipTest("no loop device: not root, or the kernel has none")
        self.addCleanup(run, "umount", "-l", mount)
        self.addCleanup(run, harness.BIN / "cistern", "down", "--dir", mount / "c")
        self.folder, keep = mount, self.folder
        self.up("--nvme", "2G")
        self.folder = keep
        trace = self.trace(2000, seed=13)
        out = self.replay(trace, **{"bytes-per-block": "64K"})
        self.assertEqual(out["failed_parts"], 0)
        self.assertGreater(self.counter("nvme_no_space_errors_total"), 0)
        self.assertGreater(self.durable(), 0)
        self.replay(trace, **{"bytes-per-block": "64K"})
        run(harness.BIN / "cistern", "down", "--dir", mount / "c")
        self.assertTrue(self.fsck()["clean"])

    def test_S07_nothing_outside_of_the_folder_is_touched(self):
        self.up_disk()
        self.stored(50)
        self.down()
        outside = self.folder / "outside"
        outside.write_text("mine")
        (self.data_dir() / "nvme" / "extent-00000007").symlink_to(outside)
        self.up_again()
        self.stored(100, seed=14)
        self.assertEqual(outside.read_text(), "mine")
        self.down()
        self.assertEqual({p["kind"] for p in self.fsck(codes=(1,))["problems"]} - {"stray_file", "unreadable"}, set())


if __name__ == "__main__":
    harness.main()
