#!/usr/bin/env bash
# Mixes what looks for faults, on seeds that nobody has run: simulated clusters, histories of real processes under faults, and the fuzz
# targets. One line a minute; ends with 1 at the first failure, with what repeats it.
#   deploy/soak.sh MINUTES [PRESET]       PRESET: release (default), asan or tsan
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
minutes=${1:-}
[[ $minutes =~ ^[1-9][0-9]*$ ]] || fail "usage: soak.sh MINUTES [release|asan|tsan]"
preset=${2:-release}

"$root/deploy/install_deps.sh"
"$root/deploy/build.sh" "$preset"
exec python3 -B "$root/tests/histories/soak.py" "$root/build/$preset" "$minutes"
