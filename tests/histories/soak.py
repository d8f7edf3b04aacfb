"""What deploy/soak.sh runs: soak.py BUILD_DIR MINUTES. Python's standard library only.

One lane a kind of work, all at the same time; each takes its next piece when the last has ended. Seeds begin at the clock, so that no
two soaks are the same, and every failure prints the command that repeats it."""
import json, os, pathlib, re, signal, subprocess, sys, tempfile, threading, time

HERE = pathlib.Path(__file__).parent
SIM_SEEDS = 20  # Of one piece of the simulation.
FUZZ_RUNS = 20_000
PIECE_MAX_S = 900  # No piece takes nearly as long; one that does hangs.


def environment_of_preset(build):
    """The environment that the test preset of the same name has."""
    root = HERE.parent.parent
    presets = json.loads((root / "CMakePresets.json").read_text())["testPresets"]
    found = next((preset for preset in presets if preset["name"] == build.name), {}).get("environment", {})
    return {name: value.replace("${sourceDir}", str(root)) for name, value in found.items()}


class Soak:
    def __init__(self, build, minutes):
        self.build, self.begin, self.end = build, time.monotonic(), time.monotonic() + 60 * minutes
        self.lock, self.counts, self.failures, self.running = threading.Lock(), {}, [], {}
        self.seed = int(time.time())
        self.log = pathlib.Path(tempfile.mkdtemp(prefix="cistern-soak-"))

    def over(self):
        return time.monotonic() >= self.end or self.failures

    def count(self, **numbers):
        with self.lock:
            for name, number in numbers.items():
                self.counts[name] = self.counts.get(name, 0) + number

    def piece(self, lane, words, env=None):
        """Runs one command to its end; None when it was cut off by the end of the soak."""
        log = self.log / f"{lane}.log"
        environment = {**os.environ, **(env or {})}
        with open(log, "w") as out:
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
            self.running[lane] = process
            began = time.monotonic()
            while process.poll() is None and time.monotonic() < began + PIECE_MAX_S:
                if self.over() and lane != "histories":  # Those end their processes themselves, and soon.
                    process.kill()
                    process.wait()
                    return None
                time.sleep(0.1)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        text = log.read_text(errors="replace")
        if process.wait() != 0:
            given = " ".join(f"{name}={value}" for name, value in (env or {}).items())
            with self.lock:
                self.failures.append(f"{lane} failed; repeat with: {given} {' '.join(map(str, words))}\n{text[-4000:]}")
        return text

    def histories(self):
        seed = self.seed
        while not self.over():
            seed += 1
            env = dict(CISTERN_HISTORY_SEED=str(seed), CISTERN_HISTORY_KEEP=str(self.log))
            text = self.piece("histories", ["python3", "-B", HERE / "histories_test.py", self.build / "bin", self.build / "tests"], env)
            for faults, calls, pages in re.findall(r"(\d+) faults, (\d+) calls, (\d+) pages hit", text or ""):
                self.count(faults=int(faults), calls=int(calls), hits=int(pages))

    def simulation(self):
        seed = self.seed * 1000
        while not self.over():
            text = self.piece("simulation", [self.build / "bin" / "cistern-sim", "--first", seed, "--seeds", SIM_SEEDS])
            seed += SIM_SEEDS
            if text is not None:
                self.count(sim_seeds=SIM_SEEDS)

    def fuzz(self):
        targets, turn = sorted((self.build / "tests").glob("*_fuzz")), 0
        while not self.over() and targets:
            target = targets[turn % len(targets)]
            corpus = HERE.parent / "fuzz" / "corpus" / target.name.removesuffix("_fuzz")
            flags = ["--corpus", corpus] if corpus.is_dir() else []
            if self.piece("fuzz", [target, *flags, "--seed", self.seed + turn, "--runs", FUZZ_RUNS]) is not None:
                self.count(fuzz_runs=FUZZ_RUNS)
            turn += 1

    def report(self):
        minute = round((time.monotonic() - self.begin) / 60)
        names = ("faults", "calls", "hits", "sim_seeds", "fuzz_runs")
        print(f"minute {minute}: " + ", ".join(f"{self.counts.get(name, 0)} {name}" for name in names) +
              f", {len(self.failures)} failures", flush=True)

    def run(self):
        print(f"soak of {(self.end - self.begin) / 60:.0f} minutes from seed {self.seed}; logs in {self.log}", flush=True)
        lanes = [threading.Thread(target=lane) for lane in (self.histories, self.simulation, self.fuzz)]
        for lane in lanes:
            lane.start()
        next_report = self.begin + 60
        while any(lane.is_alive() for lane in lanes):
            time.sleep(0.2)
            if time.monotonic() >= next_report:
                self.report()
                next_report += 60
        self.report()
        for failure in self.failures:
            print(failure)
        return 1 if self.failures else 0


if __name__ == "__main__":
    os.environ.update(environment_of_preset(pathlib.Path(sys.argv[1]).resolve()))
    sys.exit(Soak(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])).run())
