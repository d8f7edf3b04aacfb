"""Prints the passes of the demo beside each other: demo_table.py COLD.json WARM.json (outputs of `cistern replay --json`)."""
import json, pathlib, sys

passes = [json.loads(pathlib.Path(name).read_text()) for name in sys.argv[1:]]
cold = passes[0]


def pair(key):
    return lambda r: f"{r[key]['p50']:.0f} / {r[key]['p99']:.0f}"


rows = [
    ("requests", lambda r: str(r["requests"])),
    ("blocks of prompts", lambda r: str(r["blocks"])),
    ("hit ratio", lambda r: f"{r['hit_ratio']:.3f}"),
    ("read GB/s (verified)", lambda r: f"{r['read_gbps']:.2f}"),
    ("written GB/s", lambda r: f"{r['write_gbps']:.2f}"),
    ("lookup p50 / p99 us", pair("lookup_us")),
    ("load p50 / p99 us", pair("load_us")),
    ("verified parts", lambda r: str(r["verified_parts"])),
    ("wrong parts", lambda r: str(r["wrong_parts"])),
    ("failed parts", lambda r: str(r["failed_parts"])),
    ("seconds", lambda r: f"{r['seconds']:.2f}"),
]
print(f"\n{'':22} {'cold':>14} {'warm':>14}")
for name, show in rows:
    print(f"{name:22} " + " ".join(f"{show(r):>14}" for r in passes))
ideal = cold["ideal_hit_blocks"] / max(1, cold["blocks"])
print(f"(a cold pass can hit at most {ideal:.3f})\n")
sys.exit(1 if any(r["wrong_parts"] or r["failed_parts"] for r in passes) else 0)
