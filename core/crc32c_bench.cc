#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/copy_crc_vector.h"
#include "core/crc32c.h"
#include "core/random.h"

// Copy and checksum of random parts of a shared-memory arena to cold destinations, with memcpy of the same
// parts beside it (DESIGN §11). Compare figures of one run only; run with
// --benchmark_enable_random_interleaving=true
// --benchmark_repetitions=5, so that a busy machine slows all of them alike.
namespace cistern {
namespace {

constexpr size_t kArenaBytes = 1u << 30;
constexpr size_t kDestinationBytes = 256u << 20;
constexpr size_t kPairs = 1u << 14;  // Random (from, to) pairs, gone through in a circle.

// A prefaulted memfd mapping, as arenas and put windows are. Kept until the process ends.
std::byte* Region(size_t bytes) {
  const int fd = memfd_create("crc32c_bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    std::perror("memfd");
    std::exit(2);
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    std::perror("mmap");
    std::exit(2);
  }
  close(fd);
  Random random(1);
  auto* words = static_cast<uint64_t*>(at);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) words[i] = random.Next();
  return static_cast<std::byte*>(at);
}

bool Always() { return true; }

using CopyFunction = uint32_t (*)(void*, const void*, size_t, uint32_t, const void*);

uint32_t PlainMemcpy(void* to, const void* from, size_t bytes, uint32_t, const void*) {
  std::memcpy(to, from, bytes);
  return 0;
}

// state.range(0): bytes of a part. then_read: the caller reads the part at once, as a replay's verification
// does.
void CopyParts(benchmark::State& state, CopyFunction copy, bool (*is_supported)(), bool then_read) {
  if (!is_supported()) {
    state.SkipWithError("this CPU lacks it");
    return;
  }
  static std::byte* const arena = Region(kArenaBytes);
  static std::byte* const destination = Region(kDestinationBytes);
  const auto part_bytes = static_cast<size_t>(state.range(0));
  struct Pair {
    std::byte* to;
    const std::byte* from;
  };
  Random random(2);
  std::vector<Pair> pairs(kPairs);
  for (Pair& pair : pairs) {
    pair.from = arena + random.Below(kArenaBytes / part_bytes) * part_bytes;
    pair.to = destination + random.Below(kDestinationBytes / part_bytes) * part_bytes;
  }
  size_t next = 0;
  uint64_t sum = 0;
  for (auto _ : state) {
    const Pair& pair = pairs[next++ % kPairs];
    sum += copy(pair.to, pair.from, part_bytes, 0, pairs[next % kPairs].from);
    if (then_read) sum += Crc32c(pair.to, part_bytes);
  }
  benchmark::DoNotOptimize(sum);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4 << 10)->Arg(16 << 10)->Arg(32 << 10)->Arg(64 << 10)->Arg(256 << 10)->Arg(1 << 20)->Arg(
      4 << 20);
}
BENCHMARK_CAPTURE(CopyParts, limit_memcpy, PlainMemcpy, Always, false)->Apply(Sizes);
BENCHMARK_CAPTURE(CopyParts, chosen, CopyCrc32c, Always, false)->Apply(Sizes);
BENCHMARK_CAPTURE(CopyParts, portable, CopyCrc32cPortable, Always, false)->Apply(Sizes);
// The two kinds of store, alone and with the part read at once: what the threshold between them is chosen by.
#define CISTERN_BENCH_VECTOR(name, set)                                                                      \
  BENCHMARK_CAPTURE(CopyParts, name##_streaming, set.copy_streaming, set.is_supported, false)->Apply(Sizes); \
  BENCHMARK_CAPTURE(CopyParts, name##_cached, set.copy_cached, set.is_supported, false)->Apply(Sizes);       \
  BENCHMARK_CAPTURE(CopyParts, name##_streaming_then_read, set.copy_streaming, set.is_supported, true)       \
      ->Apply(Sizes);                                                                                        \
  BENCHMARK_CAPTURE(CopyParts, name##_cached_then_read, set.copy_cached, set.is_supported, true)->Apply(Sizes)
CISTERN_BENCH_VECTOR(avx512, kAvx512Crc);
CISTERN_BENCH_VECTOR(avx2, kAvx2Crc);

void Sum(benchmark::State& state) {
  std::vector<std::byte> data(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(data.data(), data.size()));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(Sum)->Arg(64)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20);

}  // namespace
}  // namespace cistern
