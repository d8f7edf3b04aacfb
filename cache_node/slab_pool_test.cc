#include "cache_node/slab_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cistern {
namespace {

constexpr uint64_t kMiB = 1u << 20;

MemoryRegion Region(uint64_t ram) {
  auto region = MemoryRegion::Create("slab-test", SlabPool::RegionBytes(ram), true);
  EXPECT_TRUE(region.ok()) << region.status();
  return *std::move(region);
}

TEST(SlabPool, ChoosesSlabsOf4MiBBelow512MiBAnd16MiBFromThere) {
  EXPECT_EQ(SlabPool::SlabBytes(72 * kMiB), 4 * kMiB);
  EXPECT_EQ(SlabPool::SlabBytes(512 * kMiB - 1), 4 * kMiB);
  EXPECT_EQ(SlabPool::SlabBytes(512 * kMiB), 16 * kMiB);
}

TEST(SlabPool, RoundsStridesTo64BytesAndNeverBelow4KiB) {
  EXPECT_EQ(SlabPool::Stride(1), 4096u);
  EXPECT_EQ(SlabPool::Stride(4096), 4096u);
  EXPECT_EQ(SlabPool::Stride(4097), 4160u);
  EXPECT_EQ(SlabPool::Stride(4u << 20), 4u << 20);
}

TEST(SlabPool, Holds72MiBOf16KiBPartsWithoutLoss) {
  MemoryRegion region = Region(72 * kMiB);
  SlabPool pool(region, 72 * kMiB);
  const ClassId c = pool.ClassFor(16384);
  uint64_t slots = 0;
  while (pool.TryTake(c) != kNoSlot) ++slots;
  EXPECT_EQ(slots, 72 * kMiB / 16384);
  EXPECT_EQ(pool.capacity_bytes(), 72 * kMiB);
}

TEST(SlabPool, UsesAShortLastSlabForSizesThatFitInIt) {
  constexpr uint64_t kRam = 18 * kMiB;  // Four slabs and a half.
  MemoryRegion region = Region(kRam);
  SlabPool pool(region, kRam);
  EXPECT_EQ(pool.capacity_bytes(), kRam);
  const ClassId large = pool.ClassFor(4u << 20);
  std::vector<SlotId> taken;
  for (SlotId slot = pool.TryTake(large); slot != kNoSlot; slot = pool.TryTake(large)) taken.push_back(slot);
  EXPECT_EQ(taken.size(), 4u) << "the short slab holds no part of 4 MiB";
  for (const SlotId slot : taken) EXPECT_LE(pool.Offset(slot) + (4u << 20), kRam);
  const ClassId small = pool.ClassFor(16384);
  uint64_t slots = 0;
  while (pool.TryTake(small) != kNoSlot) ++slots;
  EXPECT_EQ(slots, 2 * kMiB / 16384);
  for (const SlotId slot : taken) pool.Free(slot);
  while (pool.TryTake(small) != kNoSlot) ++slots;
  EXPECT_EQ(slots, kRam / 16384);
}

TEST(SlabPool, GivesEverySlotItsOwnBytesAndTrailer) {
  MemoryRegion region = Region(8 * kMiB);
  SlabPool pool(region, 8 * kMiB);
  std::set<uint64_t> offsets, trailers;
  const ClassId c = pool.ClassFor(100'000);
  for (SlotId slot = pool.TryTake(c); slot != kNoSlot; slot = pool.TryTake(c)) {
    EXPECT_EQ(pool.Offset(slot) % 64, 0u);
    EXPECT_LE(pool.Offset(slot) + 100'000, pool.capacity_bytes());
    EXPECT_GE(pool.TrailerOffset(slot), pool.capacity_bytes());
    EXPECT_LE(pool.TrailerOffset(slot) + sizeof(SlotTrailer), region.bytes());
    EXPECT_TRUE(trailers.insert(pool.TrailerOffset(slot)).second);
    EXPECT_TRUE(offsets.insert(pool.Offset(slot)).second);
  }
  EXPECT_EQ(offsets.size(), 2 * (4 * kMiB / 100'032));
  uint64_t before = 0;
  for (const uint64_t offset : offsets) {
    if (offset != 0) {
      EXPECT_GE(offset - before, 100'000u);
    }
    before = offset;
  }
}

TEST(SlabPool, F24_GenerationOnlyGrowsAndIsOddUntilVisible) {
  MemoryRegion region = Region(4 * kMiB);
  SlabPool pool(region, 4 * kMiB);
  const ClassId large = pool.ClassFor(4u << 20);
  const ClassId small = pool.ClassFor(4096);
  uint64_t last = 0;
  for (int round = 0; round < 10; ++round) {
    const SlotId slot = pool.TryTake(round % 2 == 0 ? large : small);
    ASSERT_NE(slot, kNoSlot);
    ASSERT_EQ(slot, 0u) << "the place is the same, whatever its size";
    EXPECT_EQ(pool.trailer(slot).generation % 2, 1u);
    EXPECT_GE(pool.trailer(slot).generation, last);
    ++pool.trailer(slot).generation;  // As a put does.
    last = pool.trailer(slot).generation;
    pool.Free(slot);
    EXPECT_GT(pool.trailer(slot).generation, last);
    EXPECT_EQ(pool.trailer(slot).generation % 2, 1u);
  }
}

TEST(SlabPool, AnEmptySlabServesAnotherSize) {
  MemoryRegion region = Region(8 * kMiB);
  SlabPool pool(region, 8 * kMiB);
  const ClassId small = pool.ClassFor(65536);
  std::vector<SlotId> slots;
  for (SlotId slot = pool.TryTake(small); slot != kNoSlot; slot = pool.TryTake(small)) slots.push_back(slot);
  ASSERT_EQ(slots.size(), 128u);
  const ClassId large = pool.ClassFor(1u << 20);
  EXPECT_EQ(pool.TryTake(large), kNoSlot);
  for (size_t i = 0; i < 63; ++i) pool.Free(slots[i]);
  EXPECT_EQ(pool.TryTake(large), kNoSlot) << "a slab with one used slot keeps its size";
  pool.Free(slots[63]);
  EXPECT_EQ(pool.class_slabs(small), 1u);
  int taken = 0;
  while (pool.TryTake(large) != kNoSlot) ++taken;
  EXPECT_EQ(taken, 4);
  EXPECT_EQ(pool.class_slabs(large), 1u);
}

TEST(SlabPool, PolicyIdsAreDenseAndNameTheirSlot) {
  MemoryRegion region = Region(16 * kMiB);
  SlabPool pool(region, 16 * kMiB);
  pool.TryTake(pool.ClassFor(1u << 20));
  const ClassId c = pool.ClassFor(512 * 1024);
  std::set<EntryId> ids;
  for (int i = 0; i < 20; ++i) {
    const SlotId slot = pool.TryTake(c);
    ids.insert(pool.PolicyId(slot));
    EXPECT_EQ(pool.SlotOf(c, pool.PolicyId(slot)), slot);
  }
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_LT(*ids.rbegin(), pool.class_slabs(c) * pool.slots_per_slab(c));
}

TEST(SlabPool, RefusesMoreSizesThanItsTableHoldsButReusesIdleOnes) {
  MemoryRegion region = Region(300 * kMiB);
  SlabPool pool(region, 300 * kMiB);
  std::vector<SlotId> slots;
  for (uint32_t i = 0; i < kSizeClassesMax; ++i) {
    const ClassId c = pool.ClassFor(8192 + i * 64);
    ASSERT_NE(c, kNoClass);
    slots.push_back(pool.TryTake(c));
  }
  EXPECT_EQ(pool.ClassFor(100'000), kNoClass);
  EXPECT_NE(pool.ClassFor(8192), kNoClass);
  pool.Free(slots[5]);
  EXPECT_NE(pool.ClassFor(100'000), kNoClass);
}

}  // namespace
}  // namespace cistern
