#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "core/arena.h"

// What a node's start and an engine's mapping take with pages of 4 KiB and with huge ones. The kernel gives
// huge ones to shared memory only where /sys/kernel/mm/transparent_hugepage/shmem_enabled says so.
namespace cistern {
namespace {

constexpr size_t kBytes = size_t{1} << 30;
constexpr size_t kSmallPage = 4096;

absl::StatusOr<MemoryRegion> Region(benchmark::State& state, bool huge) {
  auto region = MemoryRegion::Create("arena_bench", kBytes, true);
  if (region.ok() && huge) region->PreferHugePages(0, kBytes);
  if (!region.ok()) state.SkipWithError("this machine has no 1 GiB of memory left");
  return region;
}

void Touch(benchmark::State& state, bool huge) {
  uint64_t huge_bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto region = Region(state, huge);
    if (!region.ok()) return;
    state.ResumeTiming();
    if (!region->Populate(0, kBytes).ok()) return state.SkipWithError("this machine has too little memory");
    state.PauseTiming();
    huge_bytes = region->HugePageBytes();
    region = absl::UnknownError("given back");
    state.ResumeTiming();
  }
  state.counters["huge_mib"] = static_cast<double>(huge_bytes >> 20);
}
BENCHMARK_CAPTURE(Touch, small_pages, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Touch, huge_pages, true)->Unit(benchmark::kMillisecond);

void MapAndRead(benchmark::State& state, bool huge) {
  auto region = Region(state, huge);
  if (!region.ok()) return;
  if (!region->Populate(0, kBytes).ok()) return state.SkipWithError("this machine has too little memory");
  for (auto _ : state) {
    const auto mapped = MemoryRegion::MapPeer(dup(region->fd()), kBytes);
    if (!mapped.ok()) return state.SkipWithError("the region cannot be mapped");
    uint64_t sum = 0;
    for (size_t at = 0; at < kBytes; at += kSmallPage) sum += static_cast<uint64_t>(mapped->data()[at]);
    benchmark::DoNotOptimize(sum);
  }
  state.counters["huge_mib"] = static_cast<double>(region->HugePageBytes() >> 20);
}
BENCHMARK_CAPTURE(MapAndRead, small_pages, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(MapAndRead, huge_pages, true)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace cistern
