#!/usr/bin/env bash
# Configures and builds one preset: build.sh [PRESET [TARGET...]]; default: release, everything.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
preset=${1:-release}
shift || true
targets=()
[ $# -eq 0 ] || targets=(--target "$@")

cd "$root"
step "configuring $preset"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; fail "cmake --preset $preset failed"; }
step "building $preset with $(nproc) jobs"
export NINJA_STATUS='[%f/%t, %es] '
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"
step "built $preset"
