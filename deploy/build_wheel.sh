#!/usr/bin/env bash
# Builds the Python package's wheel: build_wheel.sh [OUT]; default: build/wheel. Prints the wheel's path at the end. PYTHON chooses
# the interpreter; CISTERN_LIBRARY names a libcistern.so that is built already. Needs a package index for scikit-build-core and nanobind.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
out=${1:-$root/build/wheel}
python=${PYTHON:-python3}

if [ -z "${CISTERN_LIBRARY:-}" ]; then
  "$root/deploy/build.sh" release cistern_shared >&2
  CISTERN_LIBRARY=$root/build/release/client/package/libcistern.so
fi
[ -e "$CISTERN_LIBRARY" ] || fail "CISTERN_LIBRARY: there is no $CISTERN_LIBRARY; build the target cistern_shared"
export CISTERN_LIBRARY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv" || fail "$python has no venv module; install python3-venv"
mkdir -p "$out"
step "building the wheel with $("$python" -V)" >&2
"$work/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" "$root/client/python" >&2
mv -f "$work"/wheel/cistern-*.whl "$out"/
ls -t "$out"/cistern-*.whl | head -n 1
