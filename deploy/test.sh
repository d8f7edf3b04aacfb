#!/usr/bin/env bash
# Installs, builds and runs all tests. `--asan` adds the unit tests under AddressSanitizer and UBSan, which doubles the build.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
asan=no
case "${1:-}" in
  --asan) asan=yes ;;
  "") ;;
  *) fail "unknown flag $1; there is --asan" ;;
esac

"$root/deploy/install_deps.sh"
"$root/deploy/build.sh" release
step "checking that every header compiles alone"
cmake --build "$root/build/release" --parallel "$(nproc)" --target all_verify_interface_header_sets
cd "$root"
totals=()
code=0
# Runs ctest with the given flags; keeps its closing totals for the end of our output.
run_tests() {
  local name=$1 log
  shift
  log=$root/build/$name/ctest.log
  ctest --preset "$name" --parallel "$(nproc)" "$@" 2>&1 | tee "$log" || code=1
  totals=("$name:" "$(grep -E '^[0-9]+% tests passed' "$log" || echo 'ctest gave no totals')" "${totals[@]}")
}
step "running all tests (release)"
run_tests release
if [ "$asan" = yes ]; then
  "$root/deploy/build.sh" asan
  step "running unit tests (asan)"
  run_tests asan -L unit
fi
step "done"
printf '%s\n' "${totals[@]}"
exit $code
