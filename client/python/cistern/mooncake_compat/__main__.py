"""`python -m cistern.mooncake_compat [--segments] SCRIPT ...`: runs a script for which `mooncake.store` is this package."""
import runpy
import sys

from . import install


def main() -> int:
    words = sys.argv[1:]
    segments = words[:1] == ["--segments"]
    words = words[segments:]
    if not words or words[0].startswith("-"):
        print("usage: python -m cistern.mooncake_compat [--segments] SCRIPT [ARGUMENT ...]", file=sys.stderr)
        return 2
    install(segments=segments)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
