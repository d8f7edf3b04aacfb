"""How long a lookup holds up vLLM's scheduler: vllm_lookup_bench.py ROUTER [TOKENS]; a request whose blocks are all cached, new ids each time.

Prints one JSON object, microseconds. Run by hand in an environment with vLLM; the bar is 1 ms p99 for 8,192 tokens."""
import json, sys, time, types

import torch

import cistern
from cistern.vllm import encodings, groups, scheduler
from cistern.vllm.options import Options
from cistern.vllm.session import Session

ROUNDS = 2000


def main():
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 8192
    options = Options.from_extra({"routers": sys.argv[1]})
    layout = cistern.Layout(model="lookup bench", block_tokens=128, part_bytes=4096)
    group = groups.Group(0, ["layer"], 128, 128, 1, 1, 0, 64, 128, torch.float32, None, encodings.NAMED[0], layout)
    session = Session.take(options)
    side = scheduler.SchedulerSide(session, [group], options)
    ids = [(i * 7919) % 100_000 for i in range(tokens + 1)]
    chain = session.client.chain(layout, ids)
    session.client.store(chain, [bytes(4096)] * len(chain))
    us = []
    for n in range(ROUNDS):
        request = types.SimpleNamespace(request_id=str(n), num_tokens=tokens + 1, all_token_ids=ids, prompt_embeds=None, cache_salt=None,
                                        lora_request=None, mm_features=[], skip_reading_prefix_cache=False)
        begin = time.perf_counter()
        found = side.match(request, 0)[0]
        us.append((time.perf_counter() - begin) * 1e6)
        assert found == tokens, found
        side.finished(str(n))
    us.sort()
    session.leave()
    print(json.dumps({"tokens": tokens, "blocks": len(chain), "rounds": ROUNDS, "us": {"p50": round(us[len(us) // 2]), "p99": round(us[len(us) * 99 // 100])}}))


if __name__ == "__main__":
    main()
