"""A real vLLM on the CPU with CisternConnector against a two-node cluster: vllm_test.py BUILD SOURCE [CASE,...]. Each engine is a process of
its own. `plugins` instead of cases: engines_test.py, in the same environment. Skipped where vLLM is not installed: deploy/install_vllm_cpu.sh puts it into build/vllm; CISTERN_VLLM names another environment."""
import contextlib, json, os, pathlib, shutil, subprocess, sys, tempfile

import environment

HERE = pathlib.Path(__file__).resolve().parent
ENGINE_PATIENCE_S = 600
DEAD_EXTRA_S = 10  # What an engine may take longer when its cluster is gone.
PROMPTS = (0, 1)
LENGTH = 600


class Wrong(Exception):
    """The text says what."""


class Cluster:
    def __init__(self, build, folder):
        self.cistern, self.folder = build / "bin/cistern", folder
        self.router = None

    def up(self):
        port = __import__("socket").create_server(("127.0.0.1", 0))
        self.router = f"127.0.0.1:{port.getsockname()[1]}"
        port.close()
        done = subprocess.run([str(self.cistern), "up", "--nodes", "2", "--ram", "256M", "--dir", str(self.folder), "--router", self.router,
                               "--detach", "--json"], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Wrong(f"no cluster: {done.stderr}")

    def down(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([str(self.cistern), "down", "--dir", str(self.folder)], capture_output=True, timeout=120)


class Suite:
    def __init__(self, python, cluster, folder):
        self.python, self.cluster, self.folder, self.started = python, cluster, folder, 0
        self.model = folder / "tiny-llama"
        environment.call(python, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); import tiny_model; tiny_model.write({str(self.model)!r})")
        self.prompts = json.loads(environment.call(python, "-c", f"import sys, json; sys.path.insert(0, {str(HERE)!r}); import tiny_model;"
                                                   f"print(json.dumps([tiny_model.prompt(n, {LENGTH}) for n in {PROMPTS}]))"))

    def engine(self, name, cache=True, dtype="float32", tp=1, die_at=None, **extra):
        self.started += 1
        stem = self.folder / f"{self.started:02d}-{name}"
        spec = dict(die_at=die_at, model=str(self.model), dtype=dtype, prompts=self.prompts, max_tokens=16, engine={"tensor_parallel_size": tp} if tp > 1 else {},
                    extra={"routers": self.cluster.router, "lookup_deadline_ms": 5000, **extra} if cache else None)
        pathlib.Path(f"{stem}.spec").write_text(json.dumps(spec))
        with open(f"{stem}.log", "wb") as log:
            code = subprocess.run([str(self.python), "-B", str(HERE / "vllm_engine.py"), f"{stem}.spec", f"{stem}.out"], stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=subprocess.STDOUT, timeout=ENGINE_PATIENCE_S, cwd=self.folder).returncode
        if die_at is not None:
            if code != -9:
                raise Wrong(f"{name}: the engine ended with {code}, it should have been killed at {die_at}")
            return None
        if code:
            lines = pathlib.Path(f"{stem}.log").read_text(errors="replace").splitlines()
            raise Wrong(f"{name}: the engine ended with {code}: " + "\n".join(lines[-15:]))
        run = json.loads(pathlib.Path(f"{stem}.out").read_text())
        print(f"{name}: {run['seconds']:.0f} s, external {[r['external'] for r in run['rows']]}, computed "
              f"{[r['computed'] for r in run['rows']]}, {run['counters']}", flush=True)
        return run

    def same_tokens(self, name, run, cold):
        for i, (row, want) in enumerate(zip(run["rows"], cold["rows"])):
            if row["tokens"] != want["tokens"]:
                raise Wrong(f"{name}: prompt {i} gives other tokens than without a cache")

    def loads(self, name, run, want):
        got = [row["external"] for row in run["rows"]]
        if got != want:
            raise Wrong(f"{name}: loaded {got} tokens, wanted {want}")

    def cold(self, **engine):
        cold = self.engine("cold", cache=False, **engine)
        if cold["rows"][0]["tokens"] == cold["rows"][1]["tokens"]:
            raise Wrong("cold: different prompts give the same tokens, so equal tokens would prove nothing")
        return cold

    def stores_and_loads(self, name, first, second):
        """What one engine stores another loads; each against a run of its own kind without a cache."""
        for role, kind, hit in (("store", first, False), ("load", second, True)):
            cold = self.cold(tp=kind.get("tp", 1))
            run = self.engine(f"{name}-{role}", **kind)
            self.same_tokens(f"{name}-{role}", run, cold)
            whole = (LENGTH - 1) // cold["block_size"] * cold["block_size"]
            self.loads(f"{name}-{role}", run, [whole * hit] * len(PROMPTS))

    def retile(self):
        """Blocks of 64 tokens under an engine whose pages have 128 and K transposed over all of them."""
        self.stores_and_loads("retile", dict(block_tokens=64), dict(block_tokens=64))

    def tp(self):
        """Two tensor-parallel ranks store, one loads: heads are stored one by one."""
        self.stores_and_loads("tp", dict(tp=2), dict(tp=1))

    def killed(self):
        """An engine dies at each step of a save and of a load; the next one gives the tokens of a run without a cache."""
        cold = self.cold()
        for n, (place, calls) in enumerate((("PageMover.copy_out", 1), ("WorkerSide._store", 1), ("PageMover.in_place", 2), ("WorkerSide._load", 1))):
            self.engine(f"killed-{n}", die_at=[place, calls])
            self.same_tokens(f"after-{n}", self.engine(f"after-{n}"), cold)

    def sync(self):
        self.stores_and_loads("sync", dict(load_async=False, weights_id="sync"), dict(load_async=False, weights_id="sync"))

    def short(self):
        """cold, store, load, dead: what continuous integration has time for."""
        cold = self.cold()
        whole = (LENGTH - 1) // cold["block_size"] * cold["block_size"]
        stored = self.engine("store")
        self.same_tokens("store", stored, cold)
        self.loads("store", stored, [0, 0])
        loaded = self.engine("load")
        self.same_tokens("load", loaded, cold)
        self.loads("load", loaded, [whole, whole])
        self.cluster.down()  # The last of all: nobody starts it again.
        dead = self.engine("dead")
        self.same_tokens("dead", dead, cold)
        self.loads("dead", dead, [0, 0])
        if dead["seconds"] > cold["seconds"] + DEAD_EXTRA_S:
            again = self.engine("cold", cache=False)  # The machine may have become slower since.
            if dead["seconds"] > again["seconds"] + DEAD_EXTRA_S:
                raise Wrong(f"dead: took {dead['seconds']:.0f} s, a run without a cache {again['seconds']:.0f} s")


def prepared(build, source):
    """The interpreter of an environment with vLLM and the wheel of this build; skips where there is none."""
    python = pathlib.Path(os.environ.get("CISTERN_VLLM") or source / "build/vllm") / "bin/python"
    if environment.sanitized(build):
        environment.skip("a sanitizer's library cannot be loaded into a plain Python")
    if not python.exists():
        environment.skip(f"there is no vLLM in {python.parents[1]}; deploy/install_vllm_cpu.sh installs it")
    if not list((build / "python/wheel").glob("cistern-*.whl")):
        environment.skip("there is no wheel: integration_python was skipped or did not run")
    environment.install(python, environment.wheel(build, source))
    return python


def plugins(build, source):
    """LMCache's and SGLang's plug-ins: they want torch, which vLLM's environment has."""
    python = prepared(build, source)
    folder, why = environment.engines(build, python)
    if folder is None:
        environment.skip(f"LMCache and SGLang cannot be installed: {why}")
    sys.exit(subprocess.run([str(python), "-B", str(HERE / "engines_test.py"), str(build / "bin"), str(build / "tests")],
                            env=os.environ | {"CISTERN_ENGINES": str(folder)}).returncode)


def main():
    build, source = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if sys.argv[3:] == ["plugins"]:
        plugins(build, source)
    python = prepared(build, source)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-vllm-"))
    cluster = Cluster(build, folder / "cluster")
    try:
        parts = subprocess.run([str(python), "-B", str(HERE / "vllm_parts_test.py"), str(source)], cwd=folder, timeout=ENGINE_PATIENCE_S).returncode
        if parts:
            raise Wrong(f"vllm_parts_test.py ended with {parts}")
        cluster.up()
        suite = Suite(python, cluster, folder)
        for case in (sys.argv[3] if len(sys.argv) > 3 else "short").split(","):
            getattr(suite, case)()
    except Wrong as what:
        print(f"{what}\nlogs are in {folder}", file=sys.stderr)
        sys.exit(1)
    finally:
        cluster.down()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
