"""Writes demo_trace.jsonl, the workload of demo.sh: chats that go on for some turns, on top of a few shared system prompts.

One JSON object a line: timestamp (ms), input_length, output_length, hash_ids (one a 512-token block; equal ids mean equal
prefixes, and only whole blocks have one). Everything is drawn from the seed below, so the file can be made again:
    python3 deploy/make_demo_trace.py > deploy/demo_trace.jsonl
"""
import json, random

SEED, TOKENS, CHATS = 20260101, 512, 150
SYSTEM_PROMPTS = [6, 3, 10]  # Lengths in blocks.

random.seed(SEED)
next_id = 0


def fresh(count):
    global next_id
    next_id += count
    return list(range(next_id - count, next_id))


systems = [fresh(blocks) for blocks in SYSTEM_PROMPTS]
requests = []
for _ in range(CHATS):
    ids = list(random.choices(systems, weights=[6, 3, 1])[0])
    when = random.uniform(0, 600_000)
    for _ in range(min(12, 1 + int(random.expovariate(1 / 3.0)))):
        ids = ids + fresh(1 + int(random.expovariate(1 / 6.0)))  # The last answer and the next question.
        answer = random.randint(20, 600)
        requests.append((when, len(ids) * TOKENS + random.randint(1, TOKENS - 1), answer, ids))
        when += random.uniform(3_000, 60_000)
requests.sort(key=lambda r: r[0])
for when, length, answer, ids in requests:
    print(json.dumps(dict(timestamp=int(when), input_length=length, output_length=answer, hash_ids=ids), separators=(",", ":")))
