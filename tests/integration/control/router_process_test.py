#!/usr/bin/env python3
"""cistern-router as a process: what it says and how it ends, with good and bad arguments, kill -9 and a taken port."""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import sanitizer

BINARY = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "cistern-router"
PATIENCE_S = 60


class RouterProcess(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cistern-router-")
        self.dir = pathlib.Path(self.folder.name)
        self.key = self.dir / "key"
        self.key.touch(mode=0o600)
        self.key.write_text(secrets.token_hex(32) + "\n")
        self.running = []

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.communicate()
        self.folder.cleanup()

    def arguments(self, **changed):
        options = {"data-dir": self.dir / "data", "cluster-key": self.key, "listen": "127.0.0.1:0", **changed}
        return [BINARY] + [text for name, value in options.items() if value is not None for text in (f"--{name}", str(value))]

    def start(self, **changed):
        """A router that listens, and its address."""
        file = self.dir / f"address-{len(self.running)}"
        process = subprocess.Popen(self.arguments(**{"address-file": file, **changed}), stderr=subprocess.PIPE, text=True)
        self.running.append(process)
        until = time.monotonic() + PATIENCE_S
        while not file.exists() and process.poll() is None and time.monotonic() < until:
            os.sched_yield()
        self.assertTrue(file.exists(), "the router did not start")
        return process, file.read_text().strip()

    def end(self, process, how):
        process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    def assert_refused(self, words, **changed):
        done = subprocess.run(self.arguments(**changed), stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for word in words if isinstance(words, tuple) else (words,):
            self.assertIn(word, done.stderr)

    def test_ends_cleanly_on_sigterm(self):
        process, address = self.start()
        code, said = self.end(process, signal.SIGTERM)
        self.assertEqual(code, 0, said)
        self.assertIn(address, said)

    def test_bad_arguments_are_one_line_and_exit_2(self):
        self.assert_refused("--data-dir", **{"data-dir": None})
        self.assert_refused("nokey", **{"cluster-key": self.dir / "nokey"})
        self.assert_refused("--listen", listen="nowhere")
        self.assert_refused("--cluster-id", **{"cluster-id": "xyz"})
        self.assert_refused("--router-id", **{"router-id": "a b"})
        self.assert_refused("no-such-flag", **{"no-such-flag": 1})
        self.key.chmod(0o644)
        self.assert_refused(str(self.key))

    def test_a_taken_port_and_a_taken_folder_are_refused(self):
        _, address = self.start()
        self.assert_refused(("cannot listen", address, "in use"), listen=address, **{"data-dir": self.dir / "other"})
        self.assert_refused("another router holds it")

    def test_kill_9_keeps_the_cluster(self):
        process, _ = self.start()
        _, said = self.end(process, signal.SIGKILL)
        cluster = said.split("cluster ")[1].split()[0]
        process, _ = self.start(**{"cluster-id": cluster})
        _, said = self.end(process, signal.SIGTERM)
        self.assertIn(cluster, said)
        self.assert_refused(cluster, **{"cluster-id": "0" * 32})

    def test_damaged_state_says_what_to_do(self):
        process, _ = self.start()
        self.end(process, signal.SIGTERM)
        (self.dir / "data" / "state" / "CURRENT").write_text("nothing\n")
        self.assert_refused("move the folder away")

    def test_S04_loopback_unless_told_otherwise_and_then_a_warning(self):
        process, address = self.start()
        self.assertTrue(address.startswith("127.0.0.1:"))
        self.assertNotIn("warning", self.end(process, signal.SIGTERM)[1])
        process, _ = self.start(listen="0.0.0.0:0")
        self.assertIn("[warning]", self.end(process, signal.SIGTERM)[1])


if __name__ == "__main__":
    sanitizer.run(unittest.main)
