#!/usr/bin/env python3
"""Prints the p99 of RAM hits of one node while its disk tier is idle, and while it writes at full speed; and beside
it, as a control, what the same hits wait on a node without a disk while a writer stores as many bytes a second: that
is what three busy processes cost on this machine. Where fio is installed, a second control: the same, while fio writes
as many bytes to the disk. That adds the machine's own work for it, none of which the node does. With `staged`, what
they wait while another reader's parts come back from the disk, each time. With `engine`, what the hits of one engine
wait that asks 4,096 times a second and stores 2 GiB a second itself, so that two CPUs are not asked for three; the same on
a node without a disk; and there while fio writes as many bytes.

Usage: busy_disk_bench.py BIN [SECONDS] [staged|engine]. Not a test: figures of a machine that does nothing else.
"""
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_fio(folder, rate):
    """Writes as the disk tier does: files of 64 MiB made ahead, batches of 1 MiB, eight on their way, synced every 16."""
    words = ["fio", "--name=disk", f"--directory={folder}", "--rw=write", "--bs=1M", "--direct=1", "--ioengine=io_uring",
             "--fixedbufs=1", "--iodepth=8", "--fdatasync=16", "--filesize=64M", "--nrfiles=128", "--openfiles=1",
             "--file_service_type=sequential", "--create_on_open=1", "--fallocate=native", "--time_based", "--runtime=100",
             f"--rate={int(rate)}"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)


def written_to_disk():
    """Bytes that any process has had written to any disk of this machine since it started."""
    sectors = 0
    for name in pathlib.Path("/sys/block").iterdir():
        sectors += int((name / "stat").read_text().split()[6])
    return sectors * 512


def measure(binary, seconds, disk, rate=None, fio_rate=None):
    """What a reader waits alone and beside a writer, on a node of its own; with or without a disk."""
    with tempfile.TemporaryDirectory(prefix="cistern-busy-") as folder:
        base = [str(binary), "--json", "--router", f"127.0.0.1:{free_port()}"]

        def run(*words):
            done = subprocess.run(base + list(words), capture_output=True, text=True, timeout=120, check=True)
            return json.loads(done.stdout)

        def start(what, lasts, *more):
            # So few that each is used again long before the writer has filled the RAM once: else they are no RAM hits.
            shape = {"read": ["64K", "--batch", "1", "--data", "128M"], "write": ["1M", "--batch", "4"]}[what]
            words = ["bench", what, "--size", *shape, "--no-spin", "--seconds", lasts, *more]
            return subprocess.Popen(base + words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

        def counters():
            return run("status")["nodes"][0]["counters"]

        nvme = ["--nvme", "8G"] if disk else []
        run("up", "--dir", folder, "--nodes", "1", "--ram", "4G", *nvme, "--detach")
        try:
            idle = json.loads(start("read", seconds).communicate(timeout=120)[0])["us"]
            before = counters()
            reader = start("read", seconds)
            # It has filled its blocks, which takes no time of what is measured, once it hits.
            while counters()["hit_blocks_total"] == before["hit_blocks_total"] and reader.poll() is None:
                pass
            writer = start("write", "100", *(["--rate", str(int(rate))] if rate else []))
            others = [writer] + ([start_fio(folder, fio_rate)] if fio_rate else [])
            began, first, on_disk = time.monotonic(), counters(), written_to_disk()
            try:
                busy = json.loads(reader.communicate(timeout=120)[0])
                after, took, on_disk = counters(), time.monotonic() - began, written_to_disk() - on_disk
                if any(other.poll() is not None for other in others):
                    raise SystemExit("the writer, or fio, ended before the reads: no figure")
                staged = after.get("nvme_staged_parts_total", 0) - first.get("nvme_staged_parts_total", 0)
                if busy["failed_ops"] + staged > busy["ops"] / 1000:
                    raise SystemExit(f"{busy['failed_ops']} of {busy['ops']} reads failed, {staged} came from the disk: "
                                     "they were no RAM hits")
            finally:
                for other in others:
                    other.terminate()
                    other.wait()
            return {"idle_us": idle, "busy_us": busy["us"], "ratio_p99": busy["us"]["p99"] / idle["p99"],
                    "busy_ops": busy["ops"], "busy_failed_ops": busy["failed_ops"],
                    "put_bytes_a_second": (after["put_bytes_total"] - first["put_bytes_total"]) / took,
                    "disk_bytes_a_second": on_disk / took}
        finally:
            run("down", "--dir", folder)


def measure_staged(binary, seconds):
    """What a reader of RAM waits alone, and beside one whose 2 GiB in turn are more than RAM holds."""
    with tempfile.TemporaryDirectory(prefix="cistern-busy-") as folder:
        base = [str(binary), "--json", "--router", f"127.0.0.1:{free_port()}"]

        def run(*words):
            done = subprocess.run(base + list(words), capture_output=True, text=True, timeout=120, check=True)
            return json.loads(done.stdout)

        def read():
            words = ["bench", "read", "--size", "64K", "--batch", "1", "--data", "16M", "--no-spin", "--seconds", seconds]
            return run(*words)

        def counters():
            return run("status")["nodes"][0]["counters"]

        trace = pathlib.Path(folder) / "trace.jsonl"
        prompts = 512
        with trace.open("w") as out:
            for i in range(prompts * 64):
                ids = [4 * (i % prompts) + block for block in range(4)]
                out.write(json.dumps({"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": ids}) + "\n")
        run("up", "--dir", folder, "--nodes", "1", "--ram", "1G", "--nvme", "4G", "--detach")
        try:
            idle = read()["us"]
            other = subprocess.Popen(base + ["replay", str(trace), "--bytes-per-block", "1M", "--speed", "max"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                while counters().get("nvme_staged_parts_total", 0) < prompts and other.poll() is None:
                    pass
                began, first = time.monotonic(), counters()
                busy = read()
                after, took = counters(), time.monotonic() - began
                if other.poll() is not None:
                    raise SystemExit("the other reader ended before the reads: no figure")
            finally:
                other.terminate()
                other.wait()
            staged = after["nvme_staged_bytes_total"] - first["nvme_staged_bytes_total"]
            return {"idle_us": idle, "busy_us": busy["us"], "ratio_p99": busy["us"]["p99"] / idle["p99"],
                    "busy_ops": busy["ops"], "busy_failed_ops": busy["failed_ops"], "staged_bytes_a_second": staged / took}
        finally:
            run("down", "--dir", folder)


def measure_engine(binary, seconds, disk, fio_rate=None):
    """What a client's hits wait alone, and while it stores, and fio writes if so: three rounds of both."""
    with tempfile.TemporaryDirectory(prefix="cistern-busy-") as folder:
        base = [str(binary), "--json", "--router", f"127.0.0.1:{free_port()}"]

        def run(*words):
            done = subprocess.run(base + list(words), capture_output=True, text=True, timeout=120, check=True)
            return json.loads(done.stdout)

        def read(*more):
            return run("bench", "read", "--size", "64K", "--batch", "1", "--data", "128M", "--no-spin", "--rate", "256M",
                       "--seconds", seconds, *more)

        def stored():
            counters = run("status")["nodes"][0]["counters"]
            return counters["put_bytes_total"], counters.get("nvme_staged_parts_total", 0)

        run("up", "--dir", folder, "--nodes", "1", "--ram", "4G", *(["--nvme", "16G"] if disk else []), "--detach")
        try:
            idle, busy, rates = [], [], []
            for _ in range(3):
                idle.append(read()["us"]["p99"])
                (before, staged), began, on_disk = stored(), time.monotonic(), written_to_disk()
                fio = start_fio(folder, fio_rate) if fio_rate else None
                try:
                    figures = read("--stores", "2G")
                finally:
                    if fio is not None:
                        fio.terminate()
                        fio.wait()
                (after, staged_after), took = stored(), time.monotonic() - began
                if figures["failed_ops"] or staged_after > staged:
                    raise SystemExit("reads failed or came from the disk: they were no RAM hits")
                busy.append(figures["us"]["p99"])
                rates.append([(after - before) / took, (written_to_disk() - on_disk) / took])
            return {"idle_p99_us": idle, "busy_p99_us": busy, "ratio_p99": sorted(busy)[1] / sorted(idle)[1],
                    "put_and_disk_bytes_a_second": rates}
        finally:
            run("down", "--dir", folder)


def main():
    binary = pathlib.Path(sys.argv[1]) / "cistern"
    seconds = sys.argv[2] if len(sys.argv) > 2 else "4"
    if "staged" in sys.argv[3:]:
        print(json.dumps(measure_staged(binary, seconds)))
        return
    if "engine" in sys.argv[3:]:
        out = {"disk": measure_engine(binary, seconds, True), "control": measure_engine(binary, seconds, False)}
        if shutil.which("fio"):
            rate = sorted(on_disk for _, on_disk in out["disk"]["put_and_disk_bytes_a_second"])[1]
            out["control_with_fio"] = measure_engine(binary, seconds, False, fio_rate=rate)
        print(json.dumps(out))
        return
    disk = measure(binary, seconds, disk=True)
    control = measure(binary, seconds, disk=False, rate=disk["put_bytes_a_second"])
    out = {"disk": disk, "control": control, "p99_over_control": disk["busy_us"]["p99"] / control["busy_us"]["p99"]}
    if shutil.which("fio"):
        out["control_with_fio"] = measure(binary, seconds, disk=False, rate=disk["put_bytes_a_second"],
                                          fio_rate=disk["disk_bytes_a_second"])
        out["p99_over_control_with_fio"] = disk["busy_us"]["p99"] / out["control_with_fio"]["busy_us"]["p99"]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
