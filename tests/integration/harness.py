"""Real processes for integration tests: `SCRIPT BIN_DIR TESTS_DIR [unittest flags]`. Free ports, temporary folders, conditions with
deadlines instead of sleeps. Python's standard library only."""
import contextlib, json, os, pathlib, random, shutil, signal, socket, subprocess, sys, tempfile, threading, time, unittest

import sanitizer

BIN = TESTS = None
PATIENCE = 400 if sanitizer.NAMES else 120  # Seconds until something that ought to end is a failure.


def main():
    global BIN, TESTS
    BIN, TESTS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    sanitizer.run(lambda: unittest.main(module="__main__", verbosity=2))


def free_port(host="127.0.0.1"):
    with socket.create_server((host, 0)) as s:
        return s.getsockname()[1]


def instrumented():
    """Whether the binaries are of a sanitizer build: slower by a factor, and bigger."""
    return bool(sanitizer.NAMES)


def shared_mappings(pid):
    """(how many, bytes) of the memfd mappings of a process: put windows and arenas, its own and handed to it."""
    ranges = [line.split()[0].split("-") for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "/memfd:" in line]
    return len(ranges), sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def halted(pid):
    """Whether every thread of a stopped process stands still: until then one of them may go on answering."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks)


def wait_for(condition, what, seconds=PATIENCE):
    """Polls until the condition gives something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def clean_env(env=None):
    return {k: v for k, v in os.environ.items() if not k.startswith("CISTERN_")} | (env or {})


def run(*words, env=None, timeout=PATIENCE, prefix=()):
    return subprocess.run([*prefix, *map(str, words)], capture_output=True, text=True, timeout=timeout, env=clean_env(env),
                          stdin=subprocess.DEVNULL)


def listeners(pid):
    """(address, port) of every TCP socket on which a process listens."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(fd)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table, family, width in (("tcp", socket.AF_INET, 8), ("tcp6", socket.AF_INET6, 32)):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] != "0A" or fields[9] not in inodes:
                    continue
                address, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, width, 8))
                found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found


class Lines:
    """A process whose standard output is one JSON object a line, read as it comes."""

    def __init__(self, *words, prefix=(), env=None):
        self.process = subprocess.Popen([*prefix, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=clean_env(env))
        self.lines, self.ended = [], False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), json.loads(line)))
        self.ended = True

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def next(self, event, after=0, seconds=PATIENCE, good=lambda line: True):
        """The first line of that event from line number `after` on; gives (its number, the line)."""
        def find():
            for i in range(after, len(self.lines)):
                line = self.lines[i][1]
                if line.get("event") == event and good(line):
                    return i + 1, line
            if self.ended and self.process.poll() is not None:
                raise AssertionError(f"{self.process.args} ended with {self.process.returncode}")
            return None
        return wait_for(find, f"a line with {event} of {self.process.args[0]}", seconds)

    def events(self, event):
        return [line for _, line in list(self.lines) if line.get("event") == event]

    def stop(self):
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()  # All of them end with their input.
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(30)
        self.process.stdout.close()


class Case(unittest.TestCase):
    """One cluster of `cistern up` in a folder of its own, ended again whatever happens."""
    nodes, ram = 2, "256M"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-it-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.router = f"127.0.0.1:{free_port()}"
        self.stopped = set()

    def up(self, *flags, nodes=None):
        self.addCleanup(self.down)
        return self.up_again("--nodes", nodes or self.nodes, "--ram", self.ram, *flags)

    def up_again(self, *flags):
        done = run(BIN / "cistern", "up", "--dir", self.folder / "c", "--router", self.router, "--detach", "--json", *flags)
        self.assertEqual(done.returncode, 0, done)
        self.cluster = json.loads(done.stdout)
        self.node_pids = {node["id"]: node["pid"] for node in self.cluster["nodes"]}
        return self.cluster

    def down(self):
        for pid in self.stopped:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        run(BIN / "cistern", "down", "--dir", self.folder / "c")

    def kill(self, pid, how=signal.SIGKILL):
        os.kill(pid, how)
        if how == signal.SIGSTOP:
            self.stopped.add(pid)
            wait_for(lambda: halted(pid), f"{pid} to stand still")
        if how == signal.SIGCONT:
            self.stopped.discard(pid)
        if how == signal.SIGKILL:
            wait_for(lambda: not alive(pid), f"{pid} to be gone")

    def cistern(self, *words, codes=(0,), env=None):
        done = run(BIN / "cistern", *words, "--router", self.router, "--json", env=env)
        self.assertIn(done.returncode, codes, done)
        return json.loads(done.stdout)

    def start_cistern(self, *words):
        """A command in the background; `finish` gives its JSON."""
        process = subprocess.Popen([str(BIN / "cistern"), *map(str, words), "--router", self.router, "--json"], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env())
        self.addCleanup(process.kill)
        return process

    def finish(self, process, codes=(0,)):
        out, err = process.communicate(timeout=PATIENCE)
        self.assertIn(process.returncode, codes, err)
        return json.loads(out)

    def client(self, command, *words, prefix=(), router=None):
        lines = Lines(TESTS / "test_client", command, "--router", router or self.router, *words, prefix=prefix)
        self.addCleanup(lines.stop)
        return lines

    def node_counters(self):
        """Counters of all nodes added up, live."""
        total = {}
        for node in self.cistern("status")["nodes"]:
            for name, value in node["counters"].items():
                total[name] = total.get(name, 0) + value
        return total

    def trace(self, requests, seed=1, turns=5):
        """A trace of sessions whose prompts grow: every turn begins with all of the one before."""
        rng, lines, next_id = random.Random(seed), [], 1
        sessions = [[0] for _ in range(max(1, requests // turns))]
        for i in range(requests):
            chain = sessions[rng.randrange(len(sessions))]
            for _ in range(rng.randrange(1, 6)):
                chain.append(next_id)
                next_id += 1
            lines.append(json.dumps(dict(timestamp=i * 10, input_length=len(chain) * 512, output_length=1, hash_ids=chain)))
        file = self.folder / f"trace-{seed}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        return file
