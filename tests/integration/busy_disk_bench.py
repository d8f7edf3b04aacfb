#!/usr/bin/env python3
"""Prints the p99 of RAM hits of one node while its disk tier is idle, and while it writes and reads at full speed.

Usage: busy_disk_bench.py BIN [SECONDS]. Not a test: figures of a machine that does nothing else.
"""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    binary = pathlib.Path(sys.argv[1]) / "cistern"
    seconds = sys.argv[2] if len(sys.argv) > 2 else "4"
    with tempfile.TemporaryDirectory(prefix="cistern-busy-") as folder:
        base = [str(binary), "--json", "--router", f"127.0.0.1:{free_port()}"]

        def run(*words):
            done = subprocess.run(base + list(words), capture_output=True, text=True, timeout=120, check=True)
            return json.loads(done.stdout)

        def start(what, lasts):
            shape = {"read": ("64K", "1"), "write": ("1M", "4")}[what]
            words = ["bench", what, "--size", shape[0], "--batch", shape[1], "--no-spin", "--seconds", lasts]
            return subprocess.Popen(base + words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def counters():
            return run("status")["nodes"][0]["counters"]

        run("up", "--dir", folder, "--nodes", "1", "--ram", "4G", "--nvme", "8G", "--detach")
        try:
            idle = json.loads(start("read", seconds).communicate(timeout=120)[0])["us"]
            before = counters()
            reader = start("read", seconds)
            # It has filled its blocks, which takes no time of what is measured, once it hits.
            while counters()["hit_blocks_total"] == before["hit_blocks_total"] and reader.poll() is None:
                pass
            writer = start("write", "100")
            try:
                busy = json.loads(reader.communicate(timeout=120)[0])
                after = counters()
                if writer.poll() is not None:
                    raise SystemExit("the writer ended before the reads: no figure")
                if busy["failed_ops"] > busy["ops"] / 100:
                    raise SystemExit(f"{busy['failed_ops']} of {busy['ops']} reads failed: they were no RAM hits")
            finally:
                writer.terminate()
                writer.wait()
            print(json.dumps({
                "idle_us": idle, "busy_us": busy["us"], "ratio_p99": busy["us"]["p99"] / idle["p99"],
                "busy_ops": busy["ops"], "busy_failed_ops": busy["failed_ops"],
                "disk_bytes_meanwhile": after["nvme_written_bytes_total"] - before["nvme_written_bytes_total"]}))
        finally:
            run("down", "--dir", folder)


if __name__ == "__main__":
    main()
