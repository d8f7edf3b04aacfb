"""One vLLM engine in one process: vllm_engine.py SPEC OUT. SPEC: {model, dtype, extra or null, prompts, max_tokens, engine, die_at or null, spoil,
between: {number of a prompt: "reset", "forget" (its own pages alone), or a command that runs before it}}; OUT: {rows: [{tokens, external, local, computed, seconds}],
seconds, block_size, counters}."""
import json, os, pathlib, signal, subprocess, sys, time

ENVIRONMENT = dict(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                   VLLM_HOST_IP="127.0.0.1", OMP_NUM_THREADS="2", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", DO_NOT_TRACK="1",
                   CUDA_VISIBLE_DEVICES="")
SOURCES = dict(external="external_kv_transfer", local="local_cache_hit", computed="local_compute")


def by_source(llm):
    found = dict.fromkeys(SOURCES, 0)
    for metric in llm.get_metrics():
        for name, source in SOURCES.items():
            if metric.name == "vllm:prompt_tokens_by_source" and metric.labels.get("source") == source:
                found[name] += int(metric.value)
    return found


def connector_counters(llm):
    """What the connector counted, as vLLM's own metrics have it."""
    return {m.labels.get("event", m.name.removeprefix("vllm:cistern_")): int(m.value) for m in llm.get_metrics() if m.name.startswith("vllm:cistern_")}


def die_at(place, calls):
    """Kills this process at that call of a method of the connector's workers: after it, so that its traces are there."""
    from cistern.vllm import pages, worker

    owner = {"PageMover": pages.PageMover, "WorkerSide": worker.WorkerSide}[place.split(".")[0]]
    name, seen = place.split(".")[1], []
    whole = getattr(owner, name)

    def dying(*args, **options):
        result = whole(*args, **options)
        seen.append(1)
        if len(seen) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, dying)


def spoil():
    """The second page of each load arrives damaged, as by a bad wire: what is stored stays as it is."""
    import types

    import cistern

    for name in ("fetch", "load"):
        def spoilt(self, what, pages, whole=getattr(cistern.Client, name), **options):
            report = whole(self, what, pages, **options)
            if len(pages) < 2 or report.codes[1]:
                return report
            memory = bytearray(pages.nbytes)
            step = len(memory) // len(pages)
            pages.copy_to(memory)
            memory[step:2 * step] = b"\xff" * step
            pages.copy_from(memory)
            codes = report.codes[:1] + bytes([cistern.PageResult.CORRUPT]) + report.codes[2:]
            return types.SimpleNamespace(failed=sorted({*report.failed, 1}), codes=codes, bytes=report.bytes)
        setattr(cistern.Client, name, spoilt)


def before(llm, action):
    if action == "reset":
        assert llm.reset_prefix_cache(reset_connector=True), "the engine did not reset its cache"
    elif action == "forget":
        assert llm.reset_prefix_cache(), "the engine did not forget its pages"
    elif action:
        subprocess.run(action, shell=True, check=True, timeout=120, stdout=subprocess.DEVNULL)


def main():
    begin = time.monotonic()
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    if spec.get("die_at"):
        die_at(*spec["die_at"])
    if spec.get("spoil"):
        spoil()
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})
    from vllm import LLM, SamplingParams

    transfer = {} if spec["extra"] is None else {"kv_transfer_config": dict(
        kv_connector="CisternConnector", kv_connector_module_path="cistern.vllm", kv_role="kv_both", kv_load_failure_policy="recompute",
        kv_connector_extra_config=spec["extra"])}
    llm = LLM(model=spec["model"], dtype=spec["dtype"], load_format="safetensors", skip_tokenizer_init=True, seed=11, max_model_len=2048,
              max_num_seqs=4, max_num_batched_tokens=2048, enforce_eager=True, disable_log_stats=False,
              enable_prefix_caching=spec["extra"] is not None and spec.get("reuse", True), **transfer, **spec["engine"])
    sampling = SamplingParams(temperature=0.0, max_tokens=spec["max_tokens"], ignore_eos=True, detokenize=False)
    rows = []
    for number, tokens in enumerate(spec["prompts"]):
        before(llm, spec.get("between", {}).get(str(number)))
        counted, start = by_source(llm), time.monotonic()
        out = llm.generate([{"prompt_token_ids": tokens}], sampling, use_tqdm=False)[0].outputs[0]
        after = by_source(llm)
        rows.append({name: after[name] - counted[name] for name in SOURCES} | dict(tokens=list(out.token_ids), seconds=time.monotonic() - start))
    llm.generate([{"prompt_token_ids": [5, 6, 7]}], SamplingParams(max_tokens=2, ignore_eos=True, detokenize=False), use_tqdm=False)
    counters, block_size = connector_counters(llm), llm.llm_engine.vllm_config.cache_config.block_size
    llm.llm_engine.engine_core.shutdown()
    pathlib.Path(sys.argv[2]).write_text(json.dumps(dict(rows=rows, seconds=time.monotonic() - begin, block_size=block_size, counters=counters)))


if __name__ == "__main__":
    main()
