#!/usr/bin/env bash
# Builds what of cistern runs on a GPU and checks it there. Needs CUDA's toolkit, CMake and a C++20 compiler, no network and
# nothing else of what cistern is built with. Ends within 5 minutes. --host-only: the same without CUDA, on the stand-in.
# Exit: 0 all holds, 1 a check failed, 2 something is missing.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
host_only=OFF
case "${1:-}" in
  --host-only) host_only=ON ;;
  "") ;;
  *) echo "usage: $0 [--host-only]" >&2; exit 2 ;;
esac

need() { command -v "$1" >/dev/null || { echo "$1 is missing: $2" >&2; exit 2; }; }
need cmake "install CMake 3.18 or later"
if [ "$host_only" = OFF ]; then
  PATH="$PATH:/usr/local/cuda/bin"
  need nvcc "install CUDA's toolkit, or put its bin folder into PATH"
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
timeout 150 cmake -S "$root/gpu/check" -B "$build" "${generator[@]}" -DCISTERN_HOST_ONLY="$host_only" >"$build/log" 2>&1 &&
  timeout 150 cmake --build "$build" >>"$build/log" 2>&1 || { tail -20 "$build/log" >&2; echo "does not build" >&2; exit 2; }

timeout 60 "$build/device_arena_check" host
if [ "$host_only" = OFF ]; then timeout 60 "$build/device_arena_check" 0 1024; fi
