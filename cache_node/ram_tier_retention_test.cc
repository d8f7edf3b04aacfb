// Pins, floors and quotas of a RamTier where there is much of them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cache_node/ram_tier.h"

namespace cistern {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr uint32_t kSmall = kSlotStrideMin;

struct World {
  explicit World(uint64_t ram, const char* policy = kEvictionPolicyDefault) : random(4) {
    auto made = MemoryRegion::Create("retention-test", SlabPool::RegionBytes(ram), true);
    EXPECT_TRUE(made.ok());
    region = std::make_unique<MemoryRegion>(*std::move(made));
    tier = std::make_unique<RamTier>(*region, ram, policy, random, counters);
    tier->AdvanceTo(tick);
  }
  PartKey Key() {
    PartKey key;
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(key.block.hash.bytes.data() + i, random.Next());
    key.block.fingerprint = random.Next();
    return key;
  }
  PartResult Put(const PartKey& key, uint32_t bytes, Retention retention = {}, TenantIndex tenant = 0) {
    const HolderId holder = tier->holders().Number(tenant, retention);
    SlotId slot = kNoSlot;
    const PartResult reserved = tier->Reserve(bytes, tick, slot, holder);
    if (reserved != PartResult::kOk) return reserved;
    return tier->Publish(slot, key, layout, bytes, 0, 0, tick);
  }
  bool Has(const PartKey& key) { return tier->Find(key.block.hash, key.coord) != kNoSlot; }
  Random random;
  NodeCounters counters;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<RamTier> tier;
  LayoutId layout{.bytes = {1}};
  uint32_t tick = 1000;
};

// More pinned parts than a policy looks at before it gives up, all of them colder than what may go.
void PinnedPartsHideNothing(const char* policy) {
  World w(64 * kMiB, policy);
  constexpr int kPinned = 2 * kVictimScanMax - 200;  // Just under half of the RAM.
  std::vector<PartKey> pinned;
  for (int i = 0; i < kPinned; ++i) {
    pinned.push_back(w.Key());
    ASSERT_EQ(w.Put(pinned.back(), kSmall, {.ttl_s = 3600, .pin = PinKind::kHard}), PartResult::kOk) << i;
  }
  for (int i = 0; i < 30'000; ++i, w.tick += i % 16 == 0)
    ASSERT_EQ(w.Put(w.Key(), kSmall), PartResult::kOk) << policy << " " << i;
  for (const PartKey& key : pinned) ASSERT_TRUE(w.Has(key));
}
TEST(RamTierRetention, PinnedPartsHideNothingFromSlru) { PinnedPartsHideNothing("slru"); }
TEST(RamTierRetention, PinnedPartsHideNothingFromLru) { PinnedPartsHideNothing("lru"); }
TEST(RamTierRetention, PinnedPartsHideNothingFromCistern) { PinnedPartsHideNothing("cistern"); }

TEST(RamTierRetention, AHardPinIsNotMadeLess) {
  World w(8 * kMiB);
  const PartKey key = w.Key();
  ASSERT_EQ(w.Put(key, kSmall, {.ttl_s = 100, .pin = PinKind::kHard}), PartResult::kOk);
  const SlotId slot = w.tier->Find(key.block.hash, key.coord);
  HolderTable& holders = w.tier->holders();
  EXPECT_FALSE(w.tier->Retain(slot, holders.Number(0, {.ttl_s = 3600})));
  EXPECT_FALSE(w.tier->Retain(slot, holders.Number(0, {.ttl_s = 3600, .pin = PinKind::kSoft})));
  EXPECT_EQ(w.tier->HolderOf(slot).retention.pin, PinKind::kHard);
  EXPECT_TRUE(w.tier->Retain(slot, holders.Number(0, {.ttl_s = 3600, .pin = PinKind::kHard})));
  EXPECT_EQ(w.tier->HolderOf(slot).retention.ttl_s, 3600u);
  EXPECT_EQ(holders.tenants()[0].pinned_bytes, kSmall);
}

// Sliding times are kept alive by uses that come just in time, so a part may not end before it.
TEST(RamTierRetention, APartLivesItsWholeTimeAndLittleMore) {
  World w(8 * kMiB);
  constexpr Nanos kTick = Nanos{1} << 23;
  for (int i = 0; i < 1000; ++i) {
    const Nanos begin = Nanos{w.tick} * kTick + static_cast<Nanos>(w.random.Below(30 * kSecond));
    const uint32_t ttl_s = 1 + static_cast<uint32_t>(w.random.Below(86'400));
    w.tick = RamTier::TickOf(begin);
    w.tier->AdvanceTo(w.tick);
    const PartKey key = w.Key();
    ASSERT_EQ(w.Put(key, kSmall, {.ttl_s = ttl_s}), PartResult::kOk);
    const SlotId slot = w.tier->Find(key.block.hash, key.coord);
    w.tick = RamTier::TickOf(begin + Nanos{ttl_s} * kSecond);
    w.tier->AdvanceTo(w.tick);
    EXPECT_FALSE(w.tier->IsExpired(w.tier->record(slot))) << "begun at " << begin << ", " << ttl_s << " s";
    w.tier->AdvanceTo(w.tick + 2);
    EXPECT_TRUE(w.tier->IsExpired(w.tier->record(slot))) << "begun at " << begin << ", " << ttl_s << " s";
    w.tier->Expire(slot);
  }
}

// A long time that is nearly over is less than a short one that begins now.
TEST(RamTierRetention, WhatIsLeftCountsNotWhatWasAskedFor) {
  World w(8 * kMiB);
  const PartKey key = w.Key();
  ASSERT_EQ(w.Put(key, kSmall, {.ttl_s = 3600}), PartResult::kOk);
  const SlotId slot = w.tier->Find(key.block.hash, key.coord);
  w.tier->AdvanceTo(w.tick + RamTier::TickOf(3500 * kSecond));
  EXPECT_TRUE(w.tier->Retain(slot, w.tier->holders().Number(0, {.ttl_s = 300})));
  w.tier->AdvanceTo(w.tick + RamTier::TickOf(3700 * kSecond));
  EXPECT_FALSE(w.tier->IsExpired(w.tier->record(slot)));
}

// A slab of another size is not emptied where that takes from a tenant what is left to it.
TEST(RamTierRetention, FloorsHoldWhenSlabsMove) {
  World w(16 * kMiB);
  HolderTable& holders = w.tier->holders();
  const TenantIndex mine = holders.TenantNamed("mine");
  holders.SetLimits(mine, {.floor_bytes = 4 * kMiB});
  std::vector<PartKey> kept;
  for (uint32_t i = 0; i < 4 * kMiB / kSmall; ++i) {
    kept.push_back(w.Key());
    ASSERT_EQ(w.Put(kept.back(), kSmall, {}, mine), PartResult::kOk);
  }
  w.tick += 1000;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(w.Put(w.Key(), 1u << 20), PartResult::kOk) << i;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(w.Put(w.Key(), 300'000), PartResult::kOk) << i;
  for (const PartKey& key : kept) ASSERT_TRUE(w.Has(key));
}

TEST(RamTierRetention, WhatNobodyCanReachStaysWhileItIsPinned) {
  World w(4 * kMiB);
  const PartKey pinned = w.Key();
  ASSERT_EQ(w.Put(pinned, kSmall, {.ttl_s = 3600, .pin = PinKind::kHard}), PartResult::kOk);
  w.tier->Strand(w.tier->Find(pinned.block.hash, pinned.coord));
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(w.Put(w.Key(), kSmall), PartResult::kOk);
  EXPECT_TRUE(w.Has(pinned));
}

// Own parts of any size make room, though the policy of the size asked for has none.
TEST(RamTierRetention, F22_OwnPartsOfOtherSizesMakeRoom) {
  World w(32 * kMiB);
  HolderTable& holders = w.tier->holders();
  const TenantIndex mine = holders.TenantNamed("mine");
  holders.SetLimits(mine, {.quota_bytes = 4 * kMiB});
  const PartKey other = w.Key();
  ASSERT_EQ(w.Put(other, kSmall), PartResult::kOk);
  for (uint32_t i = 0; i < 4 * kMiB / kSmall; ++i)
    ASSERT_EQ(w.Put(w.Key(), kSmall, {}, mine), PartResult::kOk);
  ASSERT_EQ(w.Put(w.Key(), 4u << 20, {}, mine), PartResult::kOk);
  EXPECT_EQ(holders.tenants()[mine].used_bytes, 4 * kMiB);
  EXPECT_EQ(holders.tenants()[mine].evicted_bytes, 4 * kMiB);
  EXPECT_TRUE(w.Has(other));
}

}  // namespace
}  // namespace cistern
