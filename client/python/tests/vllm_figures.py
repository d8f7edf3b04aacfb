"""What the connector costs and gains, in a real vLLM: vllm_figures.py BUILD SOURCE, alone on the machine, in the environment of vllm_test.py.
Prints one JSON object; exit 1 when a figure is beyond its bar.

overhead: time inside the connector's hooks while nothing is cached, over the time of the same prompts without a connector (bar 2 %).
load: loading 1,792 tokens against prefilling as many, with a model for which arithmetic dominates (bar: ten times faster).
lookup: what a lookup of 8,192 tokens costs the scheduler (bar: p99 1 ms)."""
import json, pathlib, subprocess, sys, tempfile

import environment
from vllm_test import HERE, Cluster, Suite, Wrong, prepared

HIT, LENGTH = 896, 1000  # Tokens of each of two prompts: seven blocks of 128.
HOOKS_US = ("lookup_us", "plan_us", "save_copy_us")  # All that the engine's own threads wait for; saves go on behind them.


def measured(suite, python):
    suite.use("wide", LENGTH)
    only = dict(max_tokens=1)
    warm = [7 + i % 50 for i in range(LENGTH)]  # The first long prefill of an engine is slower than the others.
    seconds = lambda run: sum(row["seconds"] for row in run["rows"][1:])
    cold = suite.engine("cold", cache=False, prompts=[warm, *suite.prompts], **only)
    hit = suite.engine("cold-hit", cache=False, prompts=[warm, *(p[:HIT] for p in suite.prompts)], **only)
    stored = suite.engine("store", prompts=[warm, *suite.prompts], **only)
    loaded = suite.engine("load", prompts=suite.prompts, **only)
    suite.loads("load", loaded, [HIT, HIT])
    hooks_s = sum(stored["counters"].get(name, 0) for name in HOOKS_US) / 1e6 * 2 / 3  # Of two of the three prompts.
    load_s, bytes_loaded = loaded["counters"]["load_us"] / 1e6, loaded["counters"]["loaded_bytes"]
    lookup = json.loads(environment.call(python, "-B", HERE / "vllm_lookup_bench.py", suite.cluster.router))
    return dict(
        overhead=dict(hooks_ms=round(hooks_s * 1e3, 2), prefill_s=round(seconds(cold), 3), share=round(hooks_s / seconds(cold), 5)),
        load=dict(tokens=2 * HIT, bytes=bytes_loaded, load_ms=round(load_s * 1e3, 1), prefill_ms=round(seconds(hit) * 1e3), ratio=round(seconds(hit) / load_s, 1)),
        lookup=lookup)


def main():
    build, source = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    python = prepared(build, source)
    with tempfile.TemporaryDirectory(prefix="cistern-figures-") as name:
        cluster = Cluster(build, pathlib.Path(name) / "cluster")
        try:
            cluster.up()
            figures = measured(Suite(python, cluster, pathlib.Path(name)), python)
        except Wrong as what:
            sys.exit(str(what))
        finally:
            cluster.down()
    figures["ok"] = figures["overhead"]["share"] <= 0.02 and figures["load"]["ratio"] >= 10 and figures["lookup"]["us"]["p99"] <= 1000
    print(json.dumps(figures))
    sys.exit(0 if figures["ok"] else 1)


if __name__ == "__main__":
    main()
