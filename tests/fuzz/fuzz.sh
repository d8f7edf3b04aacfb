#!/bin/sh
# Builds fuzz targets with clang's libFuzzer and AddressSanitizer and runs each for a while.
#   tests/fuzz/fuzz.sh [-t SECONDS] [TARGET...]      default: 60 s each, all targets
# New inputs go to build/fuzz/corpus/TARGET; a crash leaves its input in build/fuzz and exits 1. Copy what is worth keeping
# to tests/fuzz/corpus/TARGET.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/build/fuzz
seconds=60
while getopts t: option; do
  case $option in
    t) seconds=$OPTARG ;;
    *) echo "usage: $0 [-t SECONDS] [TARGET...]" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- frame messages ticket core_ticket trace size convert

clang=
for candidate in clang++-14 clang++; do
  if command -v "$candidate" > /dev/null; then clang=$candidate; break; fi
done
[ -n "$clang" ] || { echo "fuzz.sh needs clang++ with libFuzzer (package clang-14)" >&2; exit 2; }

packages="absl_status absl_statusor absl_strings absl_span absl_flat_hash_map absl_time absl_synchronization libisal libxxhash libcrypto libzstd protobuf"
mkdir -p "$out/gen"
flags="-std=c++20 -g -O1 -fsanitize=fuzzer,address -fno-omit-frame-pointer -I$root -I$out/gen $(pkg-config --cflags $packages)"
libs=$(pkg-config --libs $packages)
core=$(find "$root/core" -name '*.cc' ! -name '*_test.cc' ! -name '*_bench.cc' ! -name '*_fuzz.cc' ! -path '*/testing/*')
frames="$root/transport/frame.cc $(ls "$root"/transport/messages*.cc | grep -v _test)"

for target in "$@"; do
  sources="$root/tests/fuzz/${target}_fuzz.cc $core"
  [ -e "$root/tests/fuzz/${target}_fuzz.cc" ] || sources="$root/${target%%_*}/${target#*_}_fuzz.cc $core"
  case $target in
    frame | messages) sources="$sources $frames" ;;
    convert)
      protoc -I "$root" --cpp_out="$out/gen" "$root/proto/cluster.proto"
      sources="$sources $root/proto/convert.cc $root/proto/control.cc $out/gen/proto/cluster.pb.cc" ;;
  esac
  echo "building $target"
  objects=
  for source in $sources; do  # One by one, so that the core is compiled once for all targets.
    object=$out/obj/$(echo "${source#"$root"/}" | tr / _).o
    mkdir -p "$out/obj"
    if [ ! -e "$object" ] || [ "$source" -nt "$object" ]; then "$clang" $flags -c "$source" -o "$object"; fi
    objects="$objects $object"
  done
  "$clang" $flags $objects $libs -o "$out/${target}_fuzz"
  mkdir -p "$out/corpus/$target"
  kept=$root/tests/fuzz/corpus/$target
  [ -d "$kept" ] || kept=
  echo "running $target for $seconds s"
  (cd "$out" && "./${target}_fuzz" -max_total_time="$seconds" -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1 \
    "corpus/$target" $kept > "$target.log" 2>&1) || {
    tail -30 "$out/$target.log" >&2
    echo "$target failed: $out/$target.log" >&2
    exit 1
  }
  grep -E '^stat::number_of_executed_units|^Done' "$out/$target.log" || true
done
