#!/usr/bin/env bash
# Installs what building, running and testing need, from Debian 12's own packages; only what is missing. As root, or with sudo.
# --with-vm adds what the tests of real verbs need: a small machine with soft-RoCE (tests/softroce). --with-clang: what deploy/fuzz.sh needs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(
  # Tools
  g++ cmake ninja-build pkg-config ccache mold python3 python3-dev python3-pip python3-venv zstd
  # Libraries: control plane, state, hashes and checksums, command line
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev librocksdb-dev libspdlog-dev
  prometheus-cpp-dev libssl-dev libisal-dev libxxhash-dev libzstd-dev libcli11-dev nlohmann-json3-dev
  # Disk tier
  liburing-dev
  # The ucx path: RDMA and other fabrics, topology of machines
  libucx-dev libhwloc-dev
  # Tests: frameworks, lint, network namespaces
  libgtest-dev libgmock-dev libbenchmark-dev libsimde-dev clang-format clang-tidy iproute2 fio
)

case "${1:-}" in
  --with-vm)
    packages+=(qemu-system-x86 busybox-static cpio kmod util-linux rdma-core ibverbs-providers ibverbs-utils librdmacm1)
    ;;
  --with-clang) packages+=(clang) ;;
  "") ;;
  *) fail "unknown flag $1; there are --with-vm and --with-clang" ;;
esac

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  step "all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "needs root to install ${missing[*]}; run it as root, or install sudo"
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "failed: $*"; }; }

step "installing ${#missing[@]} packages: ${missing[*]}"
quietly apt update
quietly apt install -y --no-install-recommends "${missing[@]}"
step "packages installed"
