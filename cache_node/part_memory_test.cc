// What a part takes of a node's memory beside its bytes, by what malloc gave out, in RAM and on disk
// together.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/disk/disk_index.h"
#include "cache_node/ram_tier.h"

namespace cistern {
namespace {

constexpr uint32_t kParts = 1'000'000;
constexpr uint32_t kPartBytes = kSlotStrideMin;

uint64_t Allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Cost {
  double ram = 0, disk = 0;  // Bytes a part.
};

// A RAM tier that is filled `times` over, so that a policy with ghosts has all it can have of them, and an
// index of the log with as many parts.
Cost CostOf(const std::string& policy, uint32_t times) {
  constexpr uint32_t kChain = 64;  // Blocks of a request.
  const uint64_t ram_bytes = uint64_t{kParts} * kPartBytes;
  auto region = MemoryRegion::Create("part-memory-test", SlabPool::RegionBytes(ram_bytes), true);
  if (!region.ok()) return {};
  Random random(3);
  NodeCounters counters;
  const uint64_t before = Allocated();
  auto tier = std::make_unique<RamTier>(*region, ram_bytes, policy, random, counters);
  LayoutId layout{.bytes = {1}};
  std::vector<PartKey> keys(kChain);
  std::vector<uint64_t> missing(kChain);
  uint32_t tick = 0;
  for (uint64_t put = 0; put < uint64_t{times} * kParts; put += kChain) {
    for (uint32_t i = 0; i < kChain; ++i) {
      BlockKey& block = keys[i].block;
      for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(block.hash.bytes.data() + at, random.Next());
      missing[i] = RamTier::PolicyKey(block.hash, {});
    }
    const UseId use = tier->BeginUse(kPartBytes, {}, missing, tick += 8, /*to_store=*/true);
    for (uint32_t i = kChain; i-- > 0;) {
      SlotId slot = kNoSlot;
      EXPECT_EQ(tier->Reserve(kPartBytes, tick, slot), PartResult::kOk);
      EXPECT_EQ(tier->Publish(slot, keys[i], layout, kPartBytes, 0, i, tick, use), PartResult::kOk);
    }
  }
  const uint64_t with_ram = Allocated();
  EXPECT_EQ(tier->parts(), kParts);
  // Trailers are no malloc's: they lie in the arena.
  const uint64_t ram = with_ram - before + uint64_t{kParts} * sizeof(SlotTrailer);
  EXPECT_GE(ram, tier->metadata_bytes()) << "metadata_bytes leaves nothing out";
  DiskIndex disk(random);
  for (uint32_t i = 0; i < kParts; ++i) {
    BlockHash hash;
    for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(hash.bytes.data() + at, random.Next());
    disk.Insert(hash, {}, DiskEntry{});
  }
  return {.ram = static_cast<double>(ram) / kParts,
          .disk = static_cast<double>(Allocated() - with_ram) / kParts};
}

TEST(PartMemory, F21_APartInRamAndOnDiskTakesAtMost150Bytes) {
  if (Allocated() == 0) GTEST_SKIP() << "this malloc counts nothing (a sanitizer's)";
  std::printf("%-10s %8s %8s %8s\n", "policy", "ram", "disk", "both");
  for (const auto& [policy, times] : {std::pair{"lru", 1u}, {"cistern", 2u}}) {
    const Cost cost = CostOf(policy, times);
    if (cost.ram == 0) GTEST_SKIP() << "too little memory for an arena of 4 GiB";
    std::printf("%-10s %8.1f %8.1f %8.1f\n", policy, cost.ram, cost.disk, cost.ram + cost.disk);
    EXPECT_LE(cost.ram + cost.disk, 150) << policy;
  }
}

}  // namespace
}  // namespace cistern
