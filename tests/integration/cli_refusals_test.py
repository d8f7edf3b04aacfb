"""What `cistern` and the programs it starts refuse or survive, with real processes: cli_refusals_test.py BIN_DIR [unittest flags]."""
import contextlib, json, os, pathlib, re, shutil, signal, socket, subprocess, time, unittest

import sanitizer
from cli_test import BIN, PATIENCE, Case, WithCluster, run


class Output(Case):
    def test_what_standard_output_does_not_take_is_an_error(self):
        economics = ["calc", "economics", "--model", "llama-3-8b", "--prefix", "1000", "--new", "100", "--output", "10"]
        for words in (["--help"], ["--version"], ["layout", "list"], ["layout", "list", "--json"], ["calc", "memory", "--help"], economics):
            self.assertEqual(run(*words).returncode, 0, words)
            for broken in (">/dev/full", ">&-"):
                done = subprocess.run(["sh", "-c", f'exec "$@" {broken}', "sh", str(BIN / "cistern"), *words], stdin=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, (words, broken))
                self.assertIn("cannot write standard output: ", done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


    def test_every_program_says_its_version(self):
        version = re.search(r"^project\(cistern VERSION (\S+)", (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
        for name in ("cistern", "cistern-node", "cistern-router"):
            done = subprocess.run([BIN / name, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{name} {version}\n", ""))


class Fsck(Case):
    def test_what_is_no_nodes_folder_is_not_clean(self):
        for folder in ("/", self.folder):
            self.refused("fsck", folder, says=["no node's data folder", "node-1/data"])
        (self.folder / "node_id").write_text("damaged\nmore\n")
        done = run("fsck", self.folder, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([p["kind"] for p in json.loads(done.stdout)["problems"]], ["node_id"])


class Interrupted(WithCluster):
    def test_ctrl_c_tells_what_was_replayed_until_then(self):
        self.up("--nodes", 1, "--ram", "64M")
        paused = self.trace([[1, 2], [1, 2, 3]])
        paused.write_text(paused.read_text().replace('"timestamp": 1,', '"timestamp": 3600000,'))
        long = self.folder / "long.jsonl"
        long.write_text("".join(json.dumps(dict(timestamp=0, input_length=513, output_length=1, hash_ids=[i])) + "\n" for i in range(100_000)))
        flags = {"plain": (paused, "--speed", "1"), "of groups": (long, "--layout", "qwen3-next", "--scale", "64")}
        for name, words in flags.items():
            for form in ((), ("--json",)):
                with self.subTest(name, form=form):
                    done = self.interrupt("replay", *words, *form)
                    self.assertEqual((done.returncode, done.stderr), (130, ""))
                    if form:
                        result = json.loads(done.stdout)
                        self.assertTrue(result["interrupted"])
                        self.assertIn(result["requests"], [1] if name == "plain" else range(1, 100_000))
                    else:
                        self.assertRegex(done.stdout, r"(?m)^requests +\d+, then interrupted$")

    def interrupt(self, *words):
        """Runs the command until the nodes have been asked something, then interrupts it."""
        asked = lambda: sum(n["hit_blocks"] + n["miss_blocks"] for n in self.ok("status")["nodes"])
        before, until = asked(), time.monotonic() + PATIENCE
        process = subprocess.Popen([str(BIN / "cistern"), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=dict(os.environ, **self.env))
        self.addCleanup(process.kill)
        while asked() == before:
            self.assertLess(time.monotonic(), until, "nothing is asked")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(words, process.returncode, out, err)


class Unreadable(WithCluster):
    def test_what_cannot_be_read_is_not_taken_for_nothing(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        self.refused("down", "--dir", loop, says=["cannot read", "Too many levels", "another --dir"])
        self.refused("fsck", loop, says=[str(loop), "Too many levels", "be the user"])
        cluster = self.dir
        cluster.mkdir()
        (cluster / "cluster.json").symlink_to(cluster / "cluster.json")
        self.refused("up", "--dir", cluster, "--router", self.router, "--detach", says=["cannot read", "cluster.json"])
        self.assertEqual(os.readlink(cluster / "cluster.json"), str(cluster / "cluster.json"))

    def test_peers_name_the_user_whom_a_node_refuses(self):
        if os.geteuid() != 0:
            self.skipTest("another user: not root")
        self.up("--nodes", 1, "--ram", "16M")
        done = subprocess.run([BIN / "cistern", "peers", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                              env=dict(os.environ, **self.env), user=65534, cwd="/")
        self.assertEqual(done.returncode, 0, done)
        row = next(r for r in json.loads(done.stdout)["peers"] if r["from"] == "client")
        self.assertEqual(row["path"], "socket")
        self.assertRegex(row["why"], "before: .*: the node runs as user 0, this process as user 65534$")


class Starts(WithCluster):
    def test_a_lost_key_is_not_replaced(self):
        self.up("--nodes", 1, "--ram", "16M")
        self.ok("down", "--dir", self.dir)
        (self.dir / "cluster.key").rename(self.folder / "kept")
        self.refused("up", "--dir", self.dir, "--detach", says=["cluster.key is missing", "node-1", "bring the key back"])
        (self.folder / "kept").rename(self.dir / "cluster.key")
        self.up()

    def test_flags_that_could_not_start_are_not_kept(self):
        new = ["up", "--dir", self.dir, "--router", self.router, "--nodes", 1, "--detach"]
        self.refused(*new, "--policy", "mru", says=['policy "mru"'])
        self.refused(*new, "--ram", "8T", says=["--ram"])
        self.up("--nodes", 1, "--ram", "16M")
        self.ok("down", "--dir", self.dir)
        self.refused("up", "--dir", self.dir, "--ram", "8T", "--detach", says=["--ram"])
        self.up()
        self.assertEqual(self.ok("status")["nodes"][0]["tiers"][0]["capacity_bytes"], 16 << 20)

    def test_a_node_refuses_a_flag_that_does_nothing(self):
        for flags, needs in ((["--on-demotion"], "--nvme SIZE"), (["--write-through", "--nvme", "0"], "--nvme SIZE"),
                             (["--hbm-bandwidth", "1G"], "--hbm SIZE"), (["--fabric-devices", "mlx5_0:1"], "--fabric HOST:PORT")):
            done = subprocess.run([BIN / "cistern-node", "--data-dir", self.folder / "node", *flags], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stderr.splitlines()),
                             (2, [f"cistern-node: {flags[0]} does nothing without {needs}; give that too, or leave {flags[0]} away"]))
        self.assertFalse((self.folder / "node").exists())

    def test_a_router_names_the_next_step(self):
        key = self.folder / "key"
        key.write_text("7a" * 32 + "\n")
        key.chmod(0o600)
        for flags, says in ((["--data-dir", "/proc/none/router"], "give a folder that can be made and written"),
                            (["--data-dir", self.folder / "r", "--cluster-id", "7"], "without it the folder's is taken, or a new one made")):
            done = subprocess.run([BIN / "cistern-router", "--cluster-key", key, "--listen", "127.0.0.1:0", *flags], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(says, done.stderr)

    def test_a_server_that_cannot_listen_names_the_next_step(self):
        key = self.folder / "key"
        key.write_text("7a" * 32 + "\n")
        key.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for program, flags in (("cistern-router", []), ("cistern-node", ["--ram", "16M"])):
                done = subprocess.run([BIN / program, "--cluster-key", key, "--data-dir", self.folder / program, "--listen", address, *flags],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 2, done)
                self.assertRegex(done.stderr, f"{address}.*in use.*; give .*an address of this host and a free port")
                done = subprocess.run([BIN / program, "--no-such-flag"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      timeout=PATIENCE)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done)
                self.assertIn(f"see '{program} --help'", done.stderr)

    def test_up_refuses_a_flag_that_does_nothing(self):
        for flags, needs in ((["--on-demotion"], "--nvme"), (["--write-through"], "--nvme"), (["--fabric-devices", "mlx5_0:1"], "--fabric"),
                             (["--hbm-device", "host"], "--hbm")):
            self.refused("up", "--dir", self.dir, "--router", self.router, "--nodes", 1, "--detach", *flags, says=[flags[0], needs])

    def test_a_full_disk_is_named_before_a_router_or_node_makes_its_state(self):
        key, full = self.folder / "key", self.folder / "full"
        key.write_text("7a" * 32 + "\n")
        key.chmod(0o600)
        full.mkdir()
        started = 0
        for pages in range(2, 8):  # One of them is just where RocksDB would end the process.
            for program, flags in (("cistern-router", []), ("cistern-node", ["--ram", "4M", "--nvme", "192M"])):
                words = [BIN / program, "--data-dir", full / "data", "--cluster-key", key, "--listen", "127.0.0.1:0", *flags]
                mount = f'mount -t tmpfs -o size={4 * pages}k full "$1" || exit 77; shift; exec "$@"'
                done = subprocess.run(["unshare", "--mount", "sh", "-c", mount, "sh", full, *words], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=PATIENCE)
                if done.returncode in (1, 77):
                    self.skipTest(f"a small disk: {done.stderr.strip()}")
                self.assertEqual(done.returncode, 2, done)
                started += "KiB free" in done.stderr
                self.assertRegex(done.stderr.splitlines()[-1], "free space there|No space left on device")
        self.assertGreater(started, 2)

    def test_status_says_that_a_disk_refuses_writes(self):
        self.up("--nodes", 1, "--ram", "16M")
        small = self.folder / "small"
        small.mkdir()
        words = [BIN / "cistern-node", "--data-dir", small / "data", "--cluster-key", self.dir / "cluster.key", "--listen", "127.0.0.1:0",
                 "--router", self.router, "--node-id", "full", "--ram", "16M", "--nvme", "192M"]
        mount = 'mount -t tmpfs -o size=1M small "$1" || exit 77; shift; exec "$@"'
        node = subprocess.Popen(["unshare", "--mount", "sh", "-c", mount, "sh", small, *words], stdin=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        until = time.monotonic() + PATIENCE
        while not re.search(r"(?m)^full .* nvme .*the disk refuses writes$", said := run("status", env=self.env).stdout):
            if node.poll() in (1, 77):
                self.skipTest("a small disk: it cannot be mounted")
            self.assertLess(time.monotonic(), until, said)

    def test_ram_of_all_nodes_together_has_to_fit(self):
        """Each alone would, until all of them had touched it."""
        free = int(re.search(r"MemAvailable: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
        self.refused("up", "--dir", self.dir, "--router", self.router, "--nodes", 64, "--ram", free // 32, "--detach",
                     says=["64 nodes", "--ram", "available", "fewer --nodes"])

    def test_up_passes_on_what_a_node_warns_of(self):
        more = shutil.disk_usage(self.folder).free + (10 << 30)
        done = run("up", "--dir", self.dir, "--router", self.router, "--nodes", 1, "--ram", "16M", "--nvme", more, "--detach")
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stderr, "^cistern: node-1: nvme: --nvme is .* MiB free: the log ends where the disk does\n$")

    def test_up_says_which_nodes_keep_the_flags_they_have(self):
        self.up("--nodes", 1, "--ram", "16M")
        says = lambda *flags: run("up", "--dir", self.dir, "--detach", *flags).stderr
        self.assertEqual(says(), "")
        self.assertEqual(says("--ram", "16M"), "")
        self.assertIn("node-1 runs on with the flags it was started with; 'cistern down', then 'cistern up'", says("--ram", "32M"))

    def test_up_names_the_node_that_it_waits_for(self):
        node = self.up("--nodes", 2, "--ram", "16M")["nodes"][1]["pid"]
        os.kill(node, signal.SIGSTOP)
        self.addCleanup(os.kill, node, signal.SIGCONT)
        until = time.monotonic() + PATIENCE
        while [n["state"] for n in self.ok("status")["nodes"]] != ["active", "gone"]:
            self.assertLess(time.monotonic(), until, "the stopped node stays in the map")
        log = str(self.dir / "logs" / "node-2.log")
        said = self.refused("up", "--dir", self.dir, "--detach", "--deadline-s", 1, says=["node-2 did not become active", log, "--deadline-s"])
        self.assertNotIn("node-1", said)
        os.kill(node, signal.SIGCONT)

    def test_with_few_descriptors_nothing_is_left_running(self):
        """Whatever fails for lack of them: there is one line, and what was started is ended."""
        for limit in (12, 16, 24, 32, 64):
            done = subprocess.run(["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", str(BIN / "cistern"), "up", "--dir", str(self.dir),
                                   "--router", self.router, "--nodes", "1", "--ram", "16M", "--detach"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 2, (limit, done))
            self.assertRegex(done.stderr, r"(?i)open files", limit)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            left = [p for p in pathlib.Path("/proc").glob("[0-9]*") if str(self.dir) in self.words_of(p)]
            self.assertEqual(left, [], limit)

    @staticmethod
    def words_of(process):
        with contextlib.suppress(OSError):
            return (process / "cmdline").read_text().replace("\0", " ")
        return ""

    def test_a_stopped_router_is_not_taken_for_none(self):
        router = self.up("--nodes", 1, "--ram", "16M")["router"]["pid"]
        os.kill(router, signal.SIGSTOP)
        self.addCleanup(os.kill, router, signal.SIGCONT)
        said = self.refused("status", env=self.env, says=[self.router, "does not answer"])
        self.assertNotIn("no router", said)
        os.kill(router, signal.SIGCONT)


if __name__ == "__main__":
    sanitizer.run(lambda: unittest.main(verbosity=2))
