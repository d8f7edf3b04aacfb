"""A real vLLM on the CPU with CisternConnector against a two-node cluster: vllm_test.py BUILD SOURCE [CASE,...|long]. Each engine is a process
of its own, so only the case `short` runs with the other tests; `long` is all the others, some 25 minutes. `plugins` instead of cases: the
tests of the other engines' plug-ins, in the same environment. Skipped where vLLM is not installed: deploy/install_vllm_cpu.sh puts it into
build/vllm; CISTERN_VLLM names another environment."""
import contextlib, json, os, pathlib, shutil, subprocess, sys, tempfile

import environment

HERE = pathlib.Path(__file__).resolve().parent
ENGINE_PATIENCE_S = 600
DEAD_EXTRA_S = 10  # What an engine may take longer when its cluster is gone.
REQUEST_S_MAX = 10  # The longest of any request whose cluster dies.
PROMPTS = (0, 1)
PAGE_BYTES = 4096
LONG = ("retile", "tp", "shared", "states", "sync", "layers", "spoilt", "resets", "others", "killed", "dies")


class Wrong(Exception):
    """The text says what."""


def flip(pid):
    """Changes one byte of a part that a node has in memory."""
    areas = [line.split()[0].split("-") for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "/memfd:" in line]
    with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
        for begin, end in ((int(a, 16), int(b, 16)) for a, b in areas):
            for at in range(begin, end, PAGE_BYTES):
                memory.seek(at)
                page = memory.read(PAGE_BYTES)
                if page.count(0) < len(page) // 64:  # Neither empty nor a table.
                    memory.seek(at)
                    memory.write(bytes([page[0] ^ 1]))
                    return
    raise Wrong(f"node {pid} has no part in memory")


class Cluster:
    def __init__(self, build, folder):
        self.cistern, self.folder = build / "bin/cistern", folder
        self.router = None

    def up(self):
        if self.router is None:
            port = __import__("socket").create_server(("127.0.0.1", 0))
            self.router = f"127.0.0.1:{port.getsockname()[1]}"
            port.close()
        done = subprocess.run([str(self.cistern), "up", "--nodes", "2", "--ram", "256M", "--dir", str(self.folder), "--router", self.router,
                               "--detach", "--json"], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Wrong(f"no cluster: {done.stderr}")
        up = json.loads(done.stdout)
        return [up["router"]["pid"], *(node["pid"] for node in up["nodes"])]

    def down(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([str(self.cistern), "down", "--dir", str(self.folder)], capture_output=True, timeout=120)


class Suite:
    def __init__(self, python, cluster, folder):
        self.python, self.cluster, self.folder, self.started = python, cluster, folder, 0
        self.use("llama", 600)

    def use(self, model, length, seed=5):
        """Engines from now on."""
        self.length, self.model = length, self.folder / f"tiny-{model}-{seed}"
        self.prompts = json.loads(environment.call(self.python, "-c", f"import sys, json; sys.path.insert(0, {str(HERE)!r}); import tiny_model;"
                                                   f"tiny_model.write({str(self.model)!r}, {model!r}, {seed});"
                                                   f"print(json.dumps([tiny_model.prompt(n, {length}) for n in {PROMPTS}]))"))

    def engine(self, name, cache=True, dtype="float32", tp=1, die_at=None, prompts=None, between=None, max_tokens=16, spoil=False, **extra):
        self.started += 1
        stem = self.folder / f"{self.started:02d}-{name}"
        spec = dict(die_at=die_at, spoil=spoil, model=str(self.model), dtype=dtype, prompts=prompts or self.prompts, max_tokens=max_tokens, between=between or {},
                    engine={"tensor_parallel_size": tp} if tp > 1 else {},
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

    def whole(self, run):
        """Tokens of a prompt that can be loaded: whole blocks, and one token is always computed."""
        return (self.length - 1) // run["block_size"] * run["block_size"]

    def cold(self, **engine):
        cold = self.engine("cold", cache=False, **engine)
        if cold["rows"][0]["tokens"] == cold["rows"][1]["tokens"]:
            raise Wrong("cold: different prompts give the same tokens, so equal tokens would prove nothing")
        return cold

    def stores_and_loads(self, name, first, second):
        """What one engine stores another loads; each against a run of its own kind without a cache."""
        colds = {}
        for role, kind, hit in (("store", first, False), ("load", second, True)):
            engine = {key: kind[key] for key in ("tp", "dtype") if key in kind}
            cold = colds.get(str(engine)) or self.cold(**engine)
            colds[str(engine)] = cold
            run = self.engine(f"{name}-{role}", **kind)
            self.same_tokens(f"{name}-{role}", run, cold)
            self.loads(f"{name}-{role}", run, [self.whole(run) * hit] * len(PROMPTS))
        return run

    # ------------------------------------------------ long cases
    def retile(self):
        """Blocks of 64 tokens under an engine whose pages have 128 and K transposed over all of them."""
        self.stores_and_loads("retile", dict(block_tokens=64), dict(block_tokens=64))

    def tp(self):
        """Two tensor-parallel ranks store, one loads: heads are stored one by one."""
        self.stores_and_loads("tp", dict(tp=2), dict(tp=1))

    def shared(self):
        """Four ranks of two KV heads: of the two that have a head one pulls its pages, the other takes what that one has."""
        kind = dict(tp=4, transport="socket", weights_id="shared")  # What nodes of the same host map is as near as another rank.
        counters = self.stores_and_loads("shared", kind, kind)["counters"]
        if not counters.get("share_parts") or counters.get("share_refused") or counters.get("share_failed"):
            raise Wrong(f"shared-load: {counters}: ranks should have handed on parts, none of them refused")

    def states(self):
        """Layers that keep a state instead of pages: one is stored where the prompt's last whole block ends."""
        self.use("qwen3-next", 1500)
        try:
            self.stores_and_loads("states", dict(dtype="bfloat16"), dict(dtype="bfloat16"))  # The only type of its kernel for the CPU.
        finally:
            self.use("llama", 600)

    def sync(self):
        self.stores_and_loads("sync", dict(load_async=False, weights_id="sync"), dict(load_async=False, weights_id="sync"))

    def layers(self):
        """Pages loaded layer by layer beside the model; then with a byte flipped in each node's memory."""
        self.cluster.down()  # What others have stored goes: the byte is to be one of these pages.
        nodes = self.cluster.up()[1:]
        kind = dict(load_async=False, layerwise=True, layer_ranges=2, weights_id="layers")
        loaded = self.stores_and_loads("layers", kind, kind)
        if loaded["counters"].get("failed_blocks") or not loaded["counters"]["loaded_blocks"]:
            raise Wrong(f"layers-load: {loaded['counters']}: blocks failed, or none was loaded")
        for node in nodes:
            flip(node)
        cold, run = self.cold(), self.engine("layers-flipped", **kind)
        self.same_tokens("layers-flipped", run, cold)
        if not run["counters"].get("failed_pages_corrupt") or run["counters"].get("layers_not_asked"):
            raise Wrong(f"layers-flipped: {run['counters']}: damaged pages should have been counted, and every layer asked for")

    def spoilt(self):
        """A page fails in a load before or while the model runs. What the model has made of it is computed anew, and is not what others find."""
        self.use("llama", 1000)
        try:
            cold, starts = self.cold(), [prompt[:600] for prompt in self.prompts]
            for name, kind in (("whole", dict()), ("layers", dict(layerwise=True))):
                kind |= dict(load_async=False, weights_id=f"spoilt {name}")
                self.engine(f"spoilt-{name}-start", prompts=starts, **kind)
                run = self.engine(f"spoilt-{name}", spoil=True, **kind)
                self.same_tokens(f"spoilt-{name}", run, cold)
                if run["counters"].get("failed_pages_corrupt", 0) < len(PROMPTS):
                    raise Wrong(f"spoilt-{name}: {run['counters']}: a page of each prompt should have failed")
                run = self.engine(f"spoilt-{name}-after", **kind)
                self.same_tokens(f"spoilt-{name}-after", run, cold)
                self.loads(f"spoilt-{name}-after", run, [self.whole(run)] * len(PROMPTS))
        finally:
            self.use("llama", 600)

    def killed(self):
        """An engine dies at each step of a save and of a load; the next one gives the tokens of a run without a cache."""
        cold = self.cold()
        steps = (("PageMover.copy_out", 2, "first"), ("WorkerSide._store", 1, "second"),  # The self-test at start has copied out before,
                 ("PageMover.in_place", 3, "first"), ("WorkerSide._load", 1, "first"))  # and in.
        for n, (place, calls, keys) in enumerate(steps):
            self.engine(f"killed-{n}", die_at=[place, calls], weights_id=f"killed {keys}")
            self.same_tokens(f"after-{n}", self.engine(f"after-{n}", weights_id=f"killed {keys}"), cold)

    def resets(self):
        """reset_prefix_cache(reset_connector=True): what the engine itself has stored before is not found again, by it or by others after."""
        cold, twice = self.cold(), [self.prompts[0]] * 3
        run = self.engine("resets", prompts=twice, between={"1": "reset"}, weights_id="resets")
        self.same_tokens("resets", run, dict(rows=[cold["rows"][0]] * 3))
        self.loads("resets", run, [0, 0, 0])
        if run["rows"][1]["local"] or not run["rows"][2]["local"]:
            raise Wrong(f"resets: {run['rows']}: the second prompt should find nothing, the third the engine's own pages")

    def others(self):
        """Engines with other weights or another type: none of them loads what another has stored; each loads its own."""
        stored = self.engine("others-first")
        kinds = ((dict(seed=6), dict()), (dict(), dict(dtype="bfloat16")))
        for n, (model, engine) in enumerate(kinds):
            self.use("llama", 600, **model)
            cold = self.cold(**engine)
            for role, hit in (("store", False), ("load", True)):
                run = self.engine(f"others-{n}-{role}", **engine)
                self.same_tokens(f"others-{n}-{role}", run, cold)
                self.loads(f"others-{n}-{role}", run, [self.whole(run) * hit] * len(PROMPTS))
        self.use("llama", 600)
        again = self.engine("others-again")
        self.same_tokens("others-again", again, stored)
        self.loads("others-again", again, [self.whole(again)] * len(PROMPTS))

    def dies(self):
        """The whole cluster is killed between two prompts of a living engine."""
        cold = self.cold()
        kill = "kill -9 " + " ".join(map(str, self.cluster.up()))
        run = self.engine("dies", prompts=self.prompts + self.prompts, between={"1": kill}, weights_id="dies")
        self.same_tokens("dies", run, dict(rows=cold["rows"] * 2))
        self.loads("dies", run, [0] * 4)
        if max(row["seconds"] for row in run["rows"]) > REQUEST_S_MAX:
            raise Wrong(f"dies: requests took {[round(row['seconds'], 1) for row in run['rows']]} s")
        self.cluster.up()

    # ------------------------------------------------ what runs always
    def short(self):
        """cold, store, load, dead: what continuous integration has time for."""
        cold = self.cold()
        stored = self.engine("store")
        self.same_tokens("store", stored, cold)
        self.loads("store", stored, [0, 0])
        loaded = self.engine("load")
        self.same_tokens("load", loaded, cold)
        self.loads("load", loaded, [self.whole(cold)] * len(PROMPTS))
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
    """What wants torch, which vLLM's environment has: the plug-ins of LMCache and SGLang, tensors through Mooncake's interface."""
    python = prepared(build, source)
    words = [str(build / "bin"), str(build / "tests")]
    codes = [subprocess.run([str(python), "-B", str(HERE / "mooncake_test.py"), *words, "Tensors"]).returncode]
    folder, why = environment.engines(build, python)
    if folder is None:
        environment.skip(f"LMCache and SGLang cannot be installed: {why}") if not codes[0] else sys.exit(codes[0])
    codes.append(subprocess.run([str(python), "-B", str(HERE / "engines_test.py"), *words], env=os.environ | {"CISTERN_ENGINES": str(folder)}).returncode)
    sys.exit(max(codes))


def main():
    build, source = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if sys.argv[3:] == ["plugins"]:
        plugins(build, source)
    cases = (sys.argv[3] if len(sys.argv) > 3 else "short").split(",")
    python = prepared(build, source)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-vllm-"))
    cluster = Cluster(build, folder / "cluster")
    try:
        for name in ("vllm_parts_test.py", "vllm_identity_test.py", "vllm_layers_test.py"):
            if code := subprocess.run([str(python), "-B", str(HERE / name), str(source)], cwd=folder, timeout=ENGINE_PATIENCE_S).returncode:
                raise Wrong(f"{name} ended with {code}")
        cluster.up()
        suite = Suite(python, cluster, folder)
        for case in [name for case in cases for name in (LONG if case == "long" else [case])]:
            getattr(suite, case)()
    except Wrong as what:
        print(f"{what}\nlogs are in {folder}", file=sys.stderr)
        sys.exit(1)
    finally:
        cluster.down()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
