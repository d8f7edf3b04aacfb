"""What the connector costs and gains, in a real vLLM: vllm_figures.py BUILD SOURCE [FIGURE,...], alone on the machine, in the environment of
vllm_test.py. Prints one JSON object; exit 1 when a figure is beyond its bar.

overhead: time inside the connector's hooks while nothing is cached, over the time of the same prompts without a connector (bar 2 %).
load: loading 1,792 tokens against prefilling as many, with a model for which arithmetic dominates (bar: ten times faster).
layers: what a request with such a hit takes when its load is between steps, before the step, or layer by layer; no bar.
lookup: what a lookup of 8,192 tokens costs the scheduler (bar: p99 1 ms)."""
import json, pathlib, statistics, sys, tempfile

import environment
from vllm_test import HERE, Cluster, Suite, Wrong, prepared

HIT, LENGTH = 896, 1000  # Tokens of each of two prompts: seven blocks of 128.
HOOKS_US = ("lookup_us", "plan_us", "save_copy_us")  # All that the engine's own threads wait for; saves go on behind them.
WARM = [7 + i % 50 for i in range(LENGTH)]  # The first long prefill of an engine is slower than the others.
ONE = dict(max_tokens=1)
ROUNDS = 8  # Hits of each kind of load; the engine's own cache is emptied before each.


def prefill_s(run):
    return sum(row["seconds"] for row in run["rows"][1:])


def overhead(suite, python):
    cold = prefill_s(suite.engine("cold", cache=False, prompts=[WARM, *suite.prompts], **ONE))
    stored = suite.engine("store", prompts=[WARM, *suite.prompts], **ONE)
    hooks_s = sum(stored["counters"].get(name, 0) for name in HOOKS_US) / 1e6 * 2 / 3  # Of two of the three prompts.
    return dict(hooks_ms=round(hooks_s * 1e3, 2), prefill_s=round(cold, 3), share=round(hooks_s / cold, 5), ok=hooks_s <= 0.02 * cold)


def load(suite, python):
    hit = prefill_s(suite.engine("cold-hit", cache=False, prompts=[WARM, *(p[:HIT] for p in suite.prompts)], **ONE))
    suite.engine("store", prompts=suite.prompts, **ONE)
    loaded = suite.engine("load", prompts=suite.prompts, **ONE)
    suite.loads("load", loaded, [HIT, HIT])
    load_s = loaded["counters"]["load_us"] / 1e6
    return dict(tokens=2 * HIT, bytes=loaded["counters"]["loaded_bytes"], load_ms=round(load_s * 1e3, 1), prefill_ms=round(hit * 1e3),
                ratio=round(hit / load_s, 1), ok=hit >= 10 * load_s)


def layers(suite, python):
    kinds = dict(between=dict(), before=dict(load_async=False), layers=dict(load_async=False, layerwise=True))
    out = {}
    for name, kind in kinds.items():
        prompts = [WARM] + suite.prompts[:1] * (ROUNDS + 1)
        empty = {str(n): "forget" for n in range(1, len(prompts))}
        run = suite.engine(name, prompts=prompts, between=empty, layer_ranges=3, **kind, **ONE)
        rows = [row for row in run["rows"][2:] if row["external"] == HIT]  # The second has stored, unless another engine had.
        loads = sum(row["external"] == HIT for row in run["rows"])
        if len(rows) < ROUNDS:
            raise Wrong(f"layers: {name} loaded {len(rows)} times: {run['rows']}")
        out[f"{name}_ms"] = round(statistics.median(row["seconds"] for row in rows) * 1e3, 2)
        out[f"{name}_load_ms"] = round(run["counters"]["load_us"] / 1e3 / loads, 2)
    return out | dict(layer_wait_ms=round(run["counters"]["layer_wait_us"] / 1e3 / loads, 2), ok=True)


def lookup(suite, python):
    figures = json.loads(environment.call(python, "-B", HERE / "vllm_lookup_bench.py", suite.cluster.router))
    return figures | dict(ok=figures["us"]["p99"] <= 1000)


def main():
    build, source = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    wanted = sys.argv[3].split(",") if len(sys.argv) > 3 else ["overhead", "load", "layers", "lookup"]
    python, figures = prepared(build, source), {}
    with tempfile.TemporaryDirectory(prefix="cistern-figures-") as name:
        try:
            for figure in wanted:
                cluster = Cluster(build, pathlib.Path(name) / f"cluster-{figure}")
                try:
                    cluster.up()
                    suite = Suite(python, cluster, pathlib.Path(name))
                    suite.use("wide", LENGTH)
                    figures[figure] = dict(overhead=overhead, load=load, layers=layers, lookup=lookup)[figure](suite, python)
                finally:
                    cluster.down()
        except Wrong as what:
            sys.exit(str(what))
    print(json.dumps(figures))
    sys.exit(0 if all(figure["ok"] for figure in figures.values()) else 1)


if __name__ == "__main__":
    main()
