// What a part takes of a node's memory beside its bytes, by what malloc gave out, for RAM, disk and device.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/disk/disk_index.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/ram_tier.h"
#include "core/clock.h"
#include "gpu/device_arena.h"

namespace cistern {
namespace {

constexpr uint32_t kParts = 1'000'000;
constexpr uint32_t kPartBytes = kSlotStrideMin;

uint64_t Allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Fills a tier `times` over, so that a policy with ghosts has all it can have of them.
void Fill(RamTier& tier, Random& random, uint32_t times) {
  constexpr uint32_t kChain = 64;  // Blocks of a request.
  const LayoutId layout{.bytes = {1}};
  std::vector<PartKey> keys(kChain);
  std::vector<uint64_t> missing(kChain);
  uint32_t tick = 0;
  for (uint64_t put = 0; put < uint64_t{times} * kParts; put += kChain) {
    for (uint32_t i = 0; i < kChain; ++i) {
      BlockKey& block = keys[i].block;
      for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(block.hash.bytes.data() + at, random.Next());
      missing[i] = RamTier::PolicyKey(block.hash, {});
    }
    const UseId use = tier.BeginUse(kPartBytes, {}, missing, tick += 8, /*to_store=*/true);
    for (uint32_t i = kChain; i-- > 0;) {
      SlotId slot = kNoSlot;
      EXPECT_EQ(tier.Reserve(kPartBytes, tick, slot), PartResult::kOk);
      EXPECT_EQ(tier.Publish(slot, keys[i], layout, kPartBytes, 0, i, tick, use), PartResult::kOk);
    }
  }
  EXPECT_EQ(tier.parts(), kParts);
}

// Bytes a part of a tier's since so much was allocated. Trailers are no malloc's: they lie in the arena.
double CostSince(uint64_t before, const RamTier& tier) {
  const uint64_t bytes = Allocated() - before + uint64_t{kParts} * sizeof(SlotTrailer);
  EXPECT_GE(bytes, tier.metadata_bytes()) << "metadata_bytes leaves nothing out";
  return static_cast<double>(bytes) / kParts;
}

constexpr uint64_t kTierBytes = uint64_t{kParts} * kPartBytes;

// 0: there is too little memory for an arena.
double RamCost(const std::string& policy, uint32_t times) {
  auto region = MemoryRegion::Create("part-memory-test", SlabPool::RegionBytes(kTierBytes), true);
  if (!region.ok()) return 0;
  Random random(3);
  NodeCounters counters;
  const uint64_t before = Allocated();
  const auto tier = std::make_unique<RamTier>(*region, kTierBytes, policy, random, counters);
  Fill(*tier, random, times);
  return CostSince(before, *tier);
}

double HbmCost() {
  std::string error;
  auto device = MakeHostArena(kTierBytes, error);
  if (device == nullptr) return 0;
  Random random(4);
  SimClock clock;
  const uint64_t before = Allocated();
  const auto tier = HbmTier::Create({.bytes = kTierBytes}, std::move(device), clock, random);
  if (!tier.ok()) return 0;
  (*tier)->tier().SetEvictionHook(nullptr);
  Fill((*tier)->tier(), random, 1);
  return CostSince(before, (*tier)->tier());
}

double DiskCost() {
  Random random(5);
  const uint64_t before = Allocated();
  DiskIndex disk(random);
  for (uint32_t i = 0; i < kParts; ++i) {
    BlockHash hash;
    for (size_t at = 0; at < 32; at += 8) StoreLe<uint64_t>(hash.bytes.data() + at, random.Next());
    disk.Insert(hash, {}, DiskEntry{});
  }
  return static_cast<double>(Allocated() - before) / kParts;
}

TEST(PartMemory, F21_IndexAndPolicyTakeAtMost150BytesAPart) {
  if (Allocated() == 0) GTEST_SKIP() << "this malloc counts nothing (a sanitizer's)";
  const double disk = DiskCost(), hbm = HbmCost();
  // Slots are parts and their trailers (DESIGN 5): what is left of it is index and policy.
  constexpr double kTrailer = sizeof(SlotTrailer);
  std::printf("%-10s %8s %8s %8s %8s %8s %16s\n", "policy", "ram", "disk", "both", "hbm", "all",
              "without trailers");
  for (const auto& [policy, times] : {std::pair{"lru", 1u}, {"slru", 2u}, {"cistern", 2u}}) {
    const double ram = RamCost(policy, times);
    if (ram == 0 || hbm == 0) GTEST_SKIP() << "too little memory for an arena of 4 GiB";
    const double index_and_policy = ram + disk + hbm - 2 * kTrailer;
    std::printf("%-10s %8.1f %8.1f %8.1f %8.1f %8.1f %16.1f\n", policy, ram, disk, ram + disk, hbm,
                ram + disk + hbm, index_and_policy);
    EXPECT_LE(ram + disk, 150) << policy;
    EXPECT_LE(index_and_policy, 150) << policy;
  }
  // Beside that, whatever policy RAM has (docs/adr/0029).
  EXPECT_LE(hbm, 105);
}

}  // namespace
}  // namespace cistern
