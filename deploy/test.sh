#!/usr/bin/env bash
# Installs, builds and runs all tests, real verbs in a small machine among them (tests/softroce; `--no-vm` leaves it out). `--engines` also
# installs vLLM for the CPU into build/vllm, a minute and 6 GB; without it the tests of the engines are skipped by name. `--asan` and
# `--tsan` add the same tests, without lint, under AddressSanitizer with UBSan and under ThreadSanitizer; each builds everything once more.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
sanitizers=()
vm=(--with-vm)
engines=
for flag in "$@"; do
  case "$flag" in
    --asan | --tsan) sanitizers+=("${flag#--}") ;;
    --engines) engines=yes ;;
    --no-vm) vm=() ;;
    *) fail "unknown flag $flag; there are --asan, --tsan, --engines and --no-vm" ;;
  esac
done

"$root/deploy/install_deps.sh" "${vm[@]}"
if [ -n "$engines" ]; then
  "$root/deploy/install_vllm_cpu.sh" || step "no vLLM: the engines' tests will be skipped"
fi
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
for name in "${sanitizers[@]}"; do
  "$root/deploy/build.sh" "$name"
  step "running all tests but lint ($name)"
  run_tests "$name" -LE lint
done
step "done"
printf '%s\n' "${totals[@]}"
exit $code
