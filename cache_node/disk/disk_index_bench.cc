// What the index of the log costs a part: to find one, to find none, to add one; and the longest of the
// additions, which is one that made the table grow. That of a tail, too.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "cache_node/disk/disk_index.h"
#include "cache_node/disk/disk_tails.h"

namespace cistern {
namespace {

BlockHash HashOf(uint64_t number) {
  Random random(number);
  BlockHash hash;
  for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(hash.bytes.data() + i, random.Next());
  return hash;
}

struct Filled {
  explicit Filled(uint64_t parts) : index(random) {
    for (uint64_t i = 0; i < parts; ++i) {
      const BlockHash hash = HashOf(i);
      const auto begin = std::chrono::steady_clock::now();
      index.Insert(hash, {}, DiskEntry{});
      longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    }
  }
  Random random{1};
  DiskIndex index;
  std::chrono::steady_clock::duration longest{};
};

void DiskIndexInsert(benchmark::State& state) {
  const auto parts = static_cast<uint64_t>(state.range(0));
  double longest_us = 0, bytes = 0;
  for (auto _ : state) {
    const Filled filled(parts);
    longest_us = std::max(longest_us, std::chrono::duration<double, std::micro>(filled.longest).count());
    bytes = static_cast<double>(filled.index.metadata_bytes());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * parts));
  state.counters["longest_us"] = longest_us;
  state.counters["bytes_a_part"] = bytes / static_cast<double>(parts);
}

void DiskTailsAdd(benchmark::State& state) {
  const auto tails = static_cast<uint64_t>(state.range(0));
  std::chrono::steady_clock::duration longest{};
  for (auto _ : state) {
    Random random(1);
    DiskTails table(random);
    for (uint64_t i = 0; i < tails; ++i) {
      const BlockHash hash = HashOf(i);
      const auto begin = std::chrono::steady_clock::now();
      table.Add(hash, {}, {.parts = 1});
      longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * tails));
  state.counters["longest_us"] = std::chrono::duration<double, std::micro>(longest).count();
}

// range(1): whether they are there.
void DiskIndexFind(benchmark::State& state) {
  const auto parts = static_cast<uint64_t>(state.range(0));
  Filled filled(parts);
  constexpr size_t kAsked = 4096;
  std::vector<BlockHash> asked;
  for (size_t i = 0; i < kAsked; ++i) {
    asked.push_back(HashOf(filled.random.Below(parts) + (state.range(1) != 0 ? 0 : parts)));
  }
  size_t found = 0, at = 0;
  for (auto _ : state) found += filled.index.Find(asked[at++ % kAsked], {}) != nullptr;
  if (found != (state.range(1) != 0 ? static_cast<size_t>(state.iterations()) : 0))
    state.SkipWithError("wrong");
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}

BENCHMARK(DiskIndexInsert)->Arg(1'000'000)->Arg(10'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(DiskTailsAdd)->Arg(1'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(DiskIndexFind)->ArgsProduct({{1'000'000, 10'000'000}, {0, 1}})->Iterations(4'000'000);

}  // namespace
}  // namespace cistern
