"""python -m cistern bench read|write|lookup|hash: what `cistern bench` measures, through this module."""
from __future__ import annotations

import sys

from . import bench

if __name__ == "__main__":
    sys.exit(bench.main(sys.argv[1:]))
