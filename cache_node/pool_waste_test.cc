// What the pool loses to slots and slabs that are not full, in a node and as an engine's page pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "cache_node/ram_tier.h"
#include "core/trace/line_source.h"

namespace cistern {
namespace {

constexpr uint64_t kMiB = 1u << 20;

std::string TraceFolder() {
  const char* folder = std::getenv("CISTERN_TRACES");
  return folder != nullptr && *folder != '\0' ? folder : CISTERN_TRACES_DEFAULT;
}

struct Waste {
  double slots = 0;  // Of the taken slots' bytes.
  double all = 0;    // Of the slabs' bytes that have a size, free slots included.
};
Waste WasteOf(const RamTier& tier) {
  const SlabPool& pool = tier.pool();
  uint64_t parts = 0, slots = 0, slabs = 0;
  for (uint32_t s = 0; s < pool.slab_count(); ++s) {
    const Slab& slab = pool.slab(s);
    if (slab.size_class == kNoClass) continue;
    slabs += pool.slab_bytes();
    for (uint32_t i = 0; i < slab.touched; ++i) {
      if (slab.records[i].state() != SlotState::kVisible) continue;
      parts += slab.records[i].length;
      slots += pool.stride(slab.size_class);
    }
  }
  return {1 - static_cast<double>(parts) / static_cast<double>(slots),
          1 - static_cast<double>(parts) / static_cast<double>(slabs)};
}

// DeepSeek V4 Pro's history and tail parts (docs/layouts, rows fp8/fp4) and Llama 3 70B's, in one node under
// pressure, while the share of each model moves.
TEST(PoolWaste, TwoModelsInOneNode) {
  constexpr uint64_t kRam = 4096 * kMiB;
  auto region = MemoryRegion::Create("waste-test", SlabPool::RegionBytes(kRam), true);
  ASSERT_TRUE(region.ok());
  Random random(20261130);
  NodeCounters counters;
  RamTier tier(*region, kRam, kEvictionPolicyDefault, random, counters);
  const uint32_t v4[] = {1288048, 1288048, 1288048, 1288048, 2299208, 2225040, 2150400};
  constexpr uint32_t kLlama = 2621440;
  Waste worst;
  for (uint32_t i = 0; i < 40'000; ++i) {
    const bool is_llama = random.Chance(i / 10'000 % 2 == 0 ? .3 : .7);
    const uint32_t bytes = is_llama ? kLlama : v4[random.Below(std::size(v4))];
    PartKey key;
    for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(key.block.hash.bytes.data() + at, random.Next());
    SlotId slot = kNoSlot;
    ASSERT_EQ(tier.Reserve(bytes, i, slot), PartResult::kOk);
    ASSERT_EQ(tier.Publish(slot, key, LayoutId{}, bytes, 0, 0, i), PartResult::kOk);
    if (i < 10'000 || i % 500 != 0) continue;
    const Waste now = WasteOf(tier);
    worst = {std::max(worst.slots, now.slots), std::max(worst.all, now.all)};
  }
  std::printf(
      "V4 Pro + Llama 70B in one node: %.3f %% inside of slots, %.2f %% with slabs' ends and free slots\n",
      100 * worst.slots, 100 * worst.all);
  EXPECT_LT(worst.slots, .02);
  EXPECT_GT(counters.slabs_moved, 0u);
}

// Tokens of the requests of a trace of Azure: TIMESTAMP,ContextTokens,GeneratedTokens.
std::vector<uint32_t> AzureLengths(const std::string& path) {
  std::vector<uint32_t> lengths;
  auto lines = LineSource::Open(path);
  if (!lines.ok()) return lengths;
  std::string_view line;
  while ((*lines)->Next(4096, line) == LineSource::Got::kLine) {
    unsigned context = 0, generated = 0;
    const size_t comma = line.find(',');
    const std::string rest(comma == std::string_view::npos ? "" : line.substr(comma + 1));
    if (std::sscanf(rest.c_str(), "%u,%u", &context, &generated) == 2) lengths.push_back(context + generated);
  }
  return lengths;
}

// The same pool code with V4's three page sizes in vLLM, against one reservation of the greatest length for
// each sequence: what is reserved and holds no token.
void ComparePagesAndReservations(const char* what, const std::vector<uint32_t>& lengths) {
  constexpr uint32_t kPageTokens = 256;
  constexpr size_t kLive = 24;  // Sequences at a time.
  const struct { uint32_t bytes, layers; } kPages[] = {{37440, 30}, {8640, 30}, {1728, 31}};
  constexpr uint64_t kRam = 508 * kMiB;  // Slabs of 4 MiB.
  constexpr uint32_t kStrideMin = 1728;
  auto region = MemoryRegion::Create("pages-test", SlabPool::RegionBytes(kRam, kStrideMin), true);
  ASSERT_TRUE(region.ok());
  SlabPool pool(*region, kRam, kStrideMin);
  const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  struct Sequence {
    uint32_t tokens = 0;
    std::vector<SlotId> slots{};
  };
  std::deque<Sequence> live;
  double pool_waste = 0, reserved_waste = 0, slot_waste = 0;
  uint64_t measured = 0;
  for (size_t i = 0; i < std::min<size_t>(lengths.size(), 4000); ++i) {
    if (live.size() == kLive) {
      for (const SlotId slot : live.front().slots) pool.Free(slot);
      live.pop_front();
    }
    live.push_back({.tokens = lengths[i]});
    for (const auto& page : kPages) {
      const uint32_t count = (lengths[i] + kPageTokens - 1) / kPageTokens * page.layers;
      for (uint32_t k = 0; k < count; ++k) {
        const SlotId slot = pool.TryTake(pool.ClassFor(page.bytes));
        ASSERT_NE(slot, kNoSlot) << "request " << i;
        live.back().slots.push_back(slot);
      }
    }
    if (live.size() < kLive) continue;
    double token_bytes = 0, tokens = 0, pages = 0;
    uint64_t slabs = 0;
    for (const Sequence& one : live) tokens += one.tokens;
    for (const auto& page : kPages) token_bytes += double{1} * page.bytes * page.layers / kPageTokens;
    for (uint32_t s = 0; s < pool.slab_count(); ++s) {
      const Slab& slab = pool.slab(s);
      if (slab.size_class == kNoClass) continue;
      slabs += pool.slab_bytes();
      pages += static_cast<double>(slab.used) * pool.stride(slab.size_class);
    }
    ++measured;
    slot_waste += 1 - tokens * token_bytes / pages;
    pool_waste += 1 - tokens * token_bytes / static_cast<double>(slabs);
    reserved_waste += 1 - tokens / static_cast<double>(live.size() * longest);
  }
  const auto count = static_cast<double>(measured);
  std::printf(
      "%s, %zu sequences: reservations of the greatest length waste %.1f %%, pages "
      "%.1f %% (%.1f %% with slabs' free slots)\n",
      what, kLive, 100 * reserved_waste / count, 100 * slot_waste / count, 100 * pool_waste / count);
  EXPECT_GT(reserved_waste / count, .6);
  EXPECT_LT(slot_waste / count, .15);
}

TEST(PoolWaste, AnEnginesPagesAgainstReservationsOfTheGreatestLength) {
  const std::vector<uint32_t> lengths = AzureLengths(TraceFolder() + "/azure2023_conv.csv.zst");
  if (lengths.empty()) GTEST_SKIP() << "no traces in " << TraceFolder();
  ComparePagesAndReservations("Azure conversation lengths", lengths);
}

// The same where there are no traces: 64 to 8,192 tokens, as many in each octave.
TEST(PoolWaste, PagesAgainstReservationsWithMadeUpLengths) {
  Random random(20302);
  std::vector<uint32_t> lengths;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t octave = 64u << random.Below(7);
    lengths.push_back(octave + static_cast<uint32_t>(random.Below(octave)));
  }
  ComparePagesAndReservations("made-up lengths", lengths);
}

}  // namespace
}  // namespace cistern
