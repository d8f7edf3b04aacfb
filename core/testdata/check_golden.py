#!/usr/bin/env python3
"""Checks chain_golden.json against the definition of the chain hash, written again with nothing but hashlib (F03).

Usage: check_golden.py FILE. Exit 0 when every root and block hash agrees, 1 when one does not. Fingerprints (XXH3-64) are
checked by chain_test alone: Python has no XXH3 of its own.
"""
import hashlib
import json
import struct
import sys

DOMAIN, LAYOUT, SECRET, DIGEST, EPOCH, PREVIOUS, TOKENS, EXTRA = 1, 2, 3, 4, 5, 6, 7, 16
KINDS = {"lora": 1, "content": 2, "prompt_embedding": 3, "salt": 4}


def field(tag, value):
    return struct.pack("<BI", tag, len(value)) + value


def root_hash(chain):
    frame = (
        field(DOMAIN, b"cistern/1")
        + field(LAYOUT, bytes.fromhex(chain["layout"]))
        + field(SECRET, bytes.fromhex(chain["namespace_secret"]))
        + field(DIGEST, bytes.fromhex(chain["compute_digest"]))
        + field(EPOCH, struct.pack("<Q", chain["weights_epoch"]))
    )
    return hashlib.sha256(frame).digest()


def block_hash(previous, block):
    frame = field(PREVIOUS, previous) + field(TOKENS, struct.pack(f"<{len(block['tokens'])}I", *block["tokens"]))
    for extra in block["extras"]:
        value = struct.pack("<I", extra["offset"]) + bytes.fromhex(extra["value"])
        frame += field(EXTRA + KINDS[extra["kind"]], value)
    return hashlib.sha256(frame).digest()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as source:
        golden = json.load(source)
    checked, wrong = 0, 0
    for chain in golden["chains"]:
        previous = root_hash(chain)
        expected = [("root", previous, chain["root"])]
        for i, block in enumerate(chain["blocks"]):
            previous = block_hash(previous, block)
            expected.append((f"block {i}", previous, block["hash"]))
        for what, got, stored in expected:
            checked += 1
            if got.hex() != stored:
                wrong += 1
                print(f"{chain['name']} {what}: file has {stored}, definition gives {got.hex()}", file=sys.stderr)
    print(f"{checked} hashes checked, {wrong} wrong")
    return 0 if checked > 0 and wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
