#!/usr/bin/env bash
# Builds every parser's fuzz target with clang's libFuzzer, AddressSanitizer and UBSan, and runs each for a while.
#   deploy/fuzz.sh [SECONDS [TARGET...]]      default: 600 s each, all targets
# New inputs go to build/fuzz/corpus/TARGET and are where the next run begins; copy what is worth keeping to tests/fuzz/corpus/TARGET.
# A crash leaves its input in build/fuzz/crashes and ends this with 1.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
seconds=${1:-600}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "\"$seconds\" is no number of seconds; usage: fuzz.sh [SECONDS [TARGET...]]"
shift || true

"$root/deploy/install_deps.sh" --with-clang
"$root/deploy/build.sh" fuzz
out=$root/build/fuzz
[ $# -gt 0 ] || set -- $(cd "$out/tests" && ls | sed -n 's/_fuzz$//p')

# No parser may ask for more at one time, whatever an input announces (F29, S13): the smoke runs' own bound.
mib_max=$(sed -n 's/.*kFuzzAllocationMibMax = \([0-9]*\);.*/\1/p' "$root/tests/fuzz/fuzz_target.h")
[ -n "$mib_max" ] || fail "tests/fuzz/fuzz_target.h does not say kFuzzAllocationMibMax"

mkdir -p "$out/crashes"
for target in "$@"; do
  [ -x "$out/tests/${target}_fuzz" ] || fail "there is no target $target in $out/tests"
  mkdir -p "$out/corpus/$target"
  corpora=("$out/corpus/$target")
  [ ! -d "$root/tests/fuzz/corpus/$target" ] || corpora+=("$root/tests/fuzz/corpus/$target")
  log=$out/$target.log
  "$out/tests/${target}_fuzz" -max_total_time="$seconds" -malloc_limit_mb="$mib_max" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="$out/crashes/$target-" "${corpora[@]}" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    fail "$target failed; $log has all of it, repeat with: $out/tests/${target}_fuzz $out/crashes/$target-..."
  }
  step "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, $(ls "$out/corpus/$target" | wc -l) in the corpus"
done
step "done"
