#!/usr/bin/env python3
"""softroce_test.py BIN TESTS ['PART ...']: real verbs without a NIC. Boots the machine of vm.py with the programs of BIN and TESTS, and
runs guest.sh. Parts are suite, fabric, limits, cluster (all four by default) and own, the transport's own tests, which take a minute more."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def main():
    binaries, tests = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    parts = sys.argv[3] if len(sys.argv) > 3 else "suite fabric limits cluster"
    trace = HERE.parents[1] / "deploy" / "demo_trace.jsonl"
    files = [binaries / name for name in ("cistern", "cistern-node", "cistern-router", "libcistern-ucx.so")]
    files += [tests / name for name in ("test_client", "ucx_transport_suite_test", "ucx_test", "fabric_cluster_test")]
    missing = [str(path) for path in files if not path.exists()]
    if missing:
        print(f"softroce: build first: {', '.join(missing)}", file=sys.stderr)
        return 1
    script = HERE / "guest.sh"
    command = [sys.executable, str(HERE / "vm.py"), "--seconds", "800"]
    for path in [*files, trace, script]:
        command += ["--file", str(path)]
    command += ["--", f"BIN={binaries} TESTS={tests} TRACE={trace} PARTS='{parts}' sh {script}"]
    os.execv(command[0], command)  # Whoever ends this test ends the machine.


if __name__ == "__main__":
    sys.exit(main())
