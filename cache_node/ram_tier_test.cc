#include "cache_node/ram_tier.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/eviction/slru_policy.h"

namespace cistern {
namespace {

constexpr uint64_t kMiB = 1u << 20;

struct World {
  explicit World(uint64_t ram, const char* policy = kEvictionPolicyDefault) : random(4) {
    auto made = MemoryRegion::Create("ram-test", SlabPool::RegionBytes(ram), true);
    EXPECT_TRUE(made.ok());
    region = std::make_unique<MemoryRegion>(*std::move(made));
    tier = std::make_unique<RamTier>(*region, ram, policy, random, counters);
  }
  PartKey Key() {
    PartKey key;
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(key.block.hash.bytes.data() + i, random.Next());
    key.block.fingerprint = random.Next();
    return key;
  }
  PartResult Put(const PartKey& key, uint32_t bytes) {
    SlotId slot = kNoSlot;
    const PartResult reserved = tier->Reserve(bytes, tick, slot);
    if (reserved != PartResult::kOk) return reserved;
    return tier->Publish(slot, key, layout, bytes, 0, 0, tick);
  }
  // Slots that are neither free nor counted as anything would be lost for good.
  void CheckBooks() {
    uint64_t used = 0, busy = 0;
    for (uint32_t s = 0; s < tier->pool().slab_count(); ++s) {
      const Slab& slab = tier->pool().slab(s);
      if (slab.size_class == kNoClass) continue;
      used += slab.used;
      busy += slab.busy;
      uint64_t ticks = 0;
      for (uint32_t i = 0; i < slab.touched; ++i) {
        const SlotRecord& record = slab.records[i];
        if (record.state() != SlotState::kFree) ticks += record.tick;
      }
      ASSERT_EQ(slab.tick_sum, ticks);
    }
    ASSERT_EQ(used, tier->parts() + tier->doomed_parts() + tier->writing_parts());
    ASSERT_EQ(busy, tier->leased_parts() + tier->writing_parts());
  }
  Random random;
  NodeCounters counters;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<RamTier> tier;
  LayoutId layout{.bytes = {1}};
  uint32_t tick = 1000;
};

TEST(RamTier, EvictsLeastRecentlyUsedAndKeepsTheArenaFull) {
  World w(8 * kMiB);
  std::vector<PartKey> keys;
  for (int i = 0; i < 300; ++i) {
    keys.push_back(w.Key());
    ASSERT_EQ(w.Put(keys.back(), 65536), PartResult::kOk);
  }
  EXPECT_EQ(w.tier->parts(), 128u);
  EXPECT_EQ(w.tier->used_bytes(), 8 * kMiB);
  EXPECT_EQ(w.counters.evicted_parts, 172u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(w.tier->Find(keys[i].block.hash, {}) != kNoSlot, i >= 172) << i;
  w.CheckBooks();
}

TEST(RamTier, ANodeFullOfOneSizeTakesAnother) {
  World w(2048 * kMiB);
  for (uint32_t bytes : {65536u, 262144u, 4194304u, 65536u}) {
    for (uint64_t i = 0; i < 1200 * kMiB / bytes; ++i) {
      ASSERT_EQ(w.Put(w.Key(), bytes), PartResult::kOk) << bytes;
      if (i % 16 == 0) ++w.tick;
    }
    w.tick += 100;
    EXPECT_GE(w.tier->used_bytes(), 1200 * kMiB);
  }
  EXPECT_GT(w.counters.slabs_moved, 0u);
  EXPECT_GT(w.tier->used_bytes(), 2000 * kMiB);
  w.CheckBooks();
}

TEST(RamTier, ASizeThatIsInUseMoreKeepsMoreOfTheRam) {
  World w(64 * kMiB);
  for (int i = 0; i < 512; ++i) w.Put(w.Key(), 65536);
  std::vector<PartKey> hot;
  for (int i = 0; i < 256; ++i) {
    hot.push_back(w.Key());
    w.Put(hot.back(), 65536);
  }
  for (int round = 0; round < 200;
       ++round) {  // The hot quarter is read all the time while another size streams through.
    ++w.tick;
    for (const PartKey& key : hot) w.tier->Touch(w.tier->Find(key.block.hash, {}), w.tick);
    ASSERT_EQ(w.Put(w.Key(), 1u << 20), PartResult::kOk);
  }
  for (const PartKey& key : hot) EXPECT_NE(w.tier->Find(key.block.hash, {}), kNoSlot);
  w.CheckBooks();
}

TEST(RamTier, LeasedSlabsAndPartsAreNeverTaken) {
  World w(8 * kMiB);
  std::vector<SlotId> leased;
  for (int i = 0; i < 128; ++i) {
    const PartKey key = w.Key();
    w.Put(key, 65536);
    leased.push_back(w.tier->Find(key.block.hash, {}));
    ASSERT_TRUE(w.tier->TryLease(leased.back()));
  }
  EXPECT_EQ(w.tier->pinned_bytes(), 8 * kMiB);
  EXPECT_EQ(w.Put(w.Key(), 65536), PartResult::kNoSpace);
  EXPECT_EQ(w.Put(w.Key(), 1u << 20), PartResult::kNoSpace);
  w.tier->Unlease(leased[3]);
  EXPECT_EQ(w.Put(w.Key(), 1u << 20), PartResult::kNoSpace) << "its slab has other leases";
  EXPECT_EQ(w.Put(w.Key(), 65536), PartResult::kOk);
  EXPECT_EQ(w.counters.no_space, 3u);
  w.CheckBooks();
}

TEST(RamTier, F20_TheFirstToBecomeVisibleWins) {
  World w(8 * kMiB);
  const PartKey key = w.Key();
  SlotId a = kNoSlot, b = kNoSlot;
  ASSERT_EQ(w.tier->Reserve(1000, w.tick, a), PartResult::kOk);
  ASSERT_EQ(w.tier->Reserve(1000, w.tick, b), PartResult::kOk);
  EXPECT_EQ(w.tier->Find(key.block.hash, {}), kNoSlot);
  EXPECT_EQ(w.tier->Publish(b, key, w.layout, 1000, 7, 0, w.tick), PartResult::kOk);
  EXPECT_EQ(w.tier->Publish(a, key, w.layout, 1000, 8, 0, w.tick), PartResult::kExists);
  EXPECT_EQ(w.tier->trailer(w.tier->Find(key.block.hash, {})).crc, 7u);
  EXPECT_EQ(w.tier->writing_parts(), 0u);
  w.CheckBooks();
}

TEST(RamTier, F14_BooksBalanceAfterMixedUse) {
  World w(8 * kMiB);
  std::vector<PartKey> keys;
  for (int i = 0; i < 400; ++i) keys.push_back(w.Key());
  std::vector<SlotId> leased, reserved;
  for (int step = 0; step < 100'000; ++step) {
    const PartKey& key = keys[w.random.Below(keys.size())];
    const SlotId slot = w.tier->Find(key.block.hash, {});
    switch (w.random.Below(6)) {
      case 0:
        if (slot == kNoSlot) w.Put(key, w.random.Chance(0.8) ? 65536 : 300'000);
        break;
      case 1:
        if (slot != kNoSlot && leased.size() < 60 && w.tier->TryLease(slot)) leased.push_back(slot);
        break;
      case 2:
        if (!leased.empty()) {
          w.tier->Unlease(leased.back());
          leased.pop_back();
        }
        break;
      case 3:
        if (slot != kNoSlot && w.random.Chance(0.2)) w.tier->Drop(slot);
        break;
      case 4: {
        SlotId fresh = kNoSlot;
        if (reserved.size() < 8 && w.tier->Reserve(65536, w.tick, fresh) == PartResult::kOk)
          reserved.push_back(fresh);
        break;
      }
      default:
        if (!reserved.empty()) {
          w.tier->Abandon(reserved.back());
          reserved.pop_back();
        }
        if (slot != kNoSlot) w.tier->Touch(slot, ++w.tick);
    }
    if (step % 1000 == 0) w.CheckBooks();
  }
  while (!leased.empty()) {
    w.tier->Unlease(leased.back());
    leased.pop_back();
  }
  for (const SlotId slot : reserved) w.tier->Abandon(slot);
  w.CheckBooks();
  EXPECT_EQ(w.tier->leased_parts(), 0u);
  EXPECT_EQ(w.tier->pinned_bytes(), 0u);
  EXPECT_EQ(w.tier->doomed_parts(), 0u);
  w.tier->DropAll();
  EXPECT_EQ(w.tier->parts(), 0u);
  EXPECT_EQ(w.tier->used_bytes(), 0u);
  EXPECT_EQ(w.tier->pool().free_slabs(), w.tier->pool().slab_count()) << "free bytes = capacity";
}

TEST(RamTier, F21_TinyPutsCannotGrowMetadataBeyondTheSlots) {
  World w(16 * kMiB);
  for (int i = 0; i < 50'000; ++i) ASSERT_EQ(w.Put(w.Key(), 64), PartResult::kOk);
  const uint64_t full = w.tier->metadata_bytes();
  EXPECT_EQ(w.tier->parts(), 16 * kMiB / 4096);
  for (int i = 0; i < 50'000; ++i) ASSERT_EQ(w.Put(w.Key(), 64), PartResult::kOk);
  EXPECT_EQ(w.tier->metadata_bytes(), full);
  // With the ghosts that a policy has however small its pool is.
  EXPECT_LE(full, w.tier->parts() * 108 + SlruPolicy::kGhostsMin * 16 + kUsesMax * 24);
}

TEST(RamTier, F21_APartCostsAtMost110BytesOfMetadata) {
  World w(512 * kMiB);
  uint64_t worst = 0;
  for (uint64_t i = 1; i <= 512 * kMiB / 4096; ++i) {
    w.Put(w.Key(), 4096);
    if (i >= 100'000 && i % 1000 == 0) worst = std::max(worst, w.tier->metadata_bytes() / w.tier->parts());
  }
  EXPECT_LE(worst, 110u);
  // Records, trailers, cells and links of the policy, all of them.
  EXPECT_GE(worst, sizeof(SlotRecord) + sizeof(SlotTrailer) + sizeof(uint64_t));
}

// With the policies that keep ghosts, all of them there, and what they learn with.
TEST(RamTier, F21_APartCostsAtMost135BytesWithEviction) {
  for (const char* policy : {"slru", "cistern"}) {
    World w(512 * kMiB, policy);
    constexpr uint64_t kParts = 512 * kMiB / 4096;
    uint64_t worst = 0;
    for (uint64_t i = 1; i <= 4 * kParts; ++i) {
      w.tick += 4;
      ASSERT_EQ(w.Put(w.Key(), 4096), PartResult::kOk);
      if (i >= 100'000 && i % 1000 == 0) worst = std::max(worst, w.tier->metadata_bytes() / w.tier->parts());
    }
    EXPECT_EQ(w.tier->parts(), kParts);
    EXPECT_LE(worst, 135u) << policy;
  }
}

TEST(RamTier, F36_RefusesTooLargeUpFront) {
  World w(8 * kMiB);
  SlotId slot = kNoSlot;
  EXPECT_EQ(w.tier->Reserve(kPartBytesMax + 1, w.tick, slot), PartResult::kTooLarge);
  EXPECT_EQ(w.tier->Reserve(UINT32_MAX, w.tick, slot), PartResult::kTooLarge);
  EXPECT_EQ(w.tier->Reserve(0, w.tick, slot), PartResult::kInvalid);
  EXPECT_EQ(w.tier->Reserve(kPartBytesMax, w.tick, slot), PartResult::kOk);
  w.tier->Abandon(slot);
}

// However many coordinates a writer makes up: what a drop of its block would not find is not taken.
TEST(RamTier, TakesSoManyCoordinatesAndNoMore) {
  World w(4 * kMiB);
  PartKey key = w.Key();
  for (uint32_t i = 0; i < kCoordsSeenMax; ++i) {
    key.coord = PartCoord::Unpack(i);
    ASSERT_EQ(w.Put(key, 100), PartResult::kOk);
    ASSERT_EQ(w.tier->DropPart(key.block.hash, key.coord).parts, 1u);
  }
  key.coord = PartCoord::Unpack(kCoordsSeenMax);
  EXPECT_EQ(w.Put(key, 100), PartResult::kBusy);
  EXPECT_EQ(w.tier->writing_parts(), 0u);
  key.coord = PartCoord::Unpack(5);
  EXPECT_EQ(w.Put(key, 100), PartResult::kOk);
}

}  // namespace
}  // namespace cistern
