// The HBM tier on the host stand-in: what moves, that every move is checked, what the bandwidth allows.
#include "cache_node/hbm_tier.h"

#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

class HbmTierTest : public ShardFixture {
 protected:
  void Start(uint64_t ram_bytes, uint64_t hbm_bytes, bool with_disk = false,
             uint64_t rate = kHbmMoveBytesPerSecond) {
    ShardFixture::Start(ram_bytes);
    if (with_disk) AttachDisk();
    std::string error;
    auto device = MakeHostArena(hbm_bytes, error);
    CISTERN_CHECK(device != nullptr);
    auto made = HbmTier::Create({.bytes = hbm_bytes, .move_bytes_per_s = rate}, std::move(device),
                                world->clock, random);
    CISTERN_CHECK(made.ok());
    world->shard->AttachHbm(*std::move(made));
    Turns(100);
  }
  HbmTier& hbm() { return *world->shard->hbm(); }
  ChainRequest Stored(uint32_t blocks) {
    ChainRequest chain = world->Chain(world->Blocks(blocks), kPart);
    for (const PartResult result : world->Store(peer, chain)) EXPECT_EQ(result, PartResult::kOk);
    Turns(50);
    return chain;
  }
  uint32_t Use(const ChainRequest& chain) {
    const uint32_t hits = ShardFixture::Use(chain);
    Turns(20);  // What is used again goes up.
    return hits;
  }
  std::byte* DeviceBytes() { return static_cast<std::byte*>(hbm().device().base()); }
};

TEST_F(HbmTierTest, WhatIsUsedAgainGoesUpAndComesBackWhole) {
  Start(8 * kMiB, 16 * kMiB);
  const ChainRequest chain = Stored(8);
  EXPECT_EQ(Use(chain), 8u);
  EXPECT_EQ(hbm().tier().parts(), 0u);  // Once is no reason.
  EXPECT_EQ(Use(chain), 8u);
  EXPECT_EQ(hbm().tier().parts(), 8u);
  for (int i = 0; i < 12; ++i) Stored(4);  // RAM forgets it.
  EXPECT_EQ(world->shard->ram().Find(chain.blocks[0].hash, {}), kNoSlot);
  EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 8u);
  EXPECT_EQ(Use(chain), 8u);
  EXPECT_EQ(hbm().counters().staged_parts, 8u);
  EXPECT_EQ(hbm().counters().corrupt_parts, 0u);
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
  EXPECT_EQ(hbm().tier().leased_parts(), 0u);
}

TEST_F(HbmTierTest, ItIsNamedAsWhatItIs) {
  Start(8 * kMiB, 16 * kMiB);
  for (const TierStats& tier : world->shard->Stats().tiers) {
    if (tier.tier == "hbm") {
      EXPECT_EQ(tier.device, "host stand-in");
    }
  }
}

// Bytes that change on the device are no hit: the part is dropped, counted, and may be stored again.
TEST_F(HbmTierTest, ChangedBytesOnTheDeviceAreAMiss) {
  Start(8 * kMiB, 16 * kMiB);
  const ChainRequest chain = Stored(4);
  Use(chain), Use(chain);
  ASSERT_EQ(hbm().tier().parts(), 4u);
  for (int i = 0; i < 12; ++i) Stored(4);
  const SlotId third = hbm().tier().Find(chain.blocks[2].hash, {});
  ASSERT_NE(third, kNoSlot);
  DeviceBytes()[hbm().tier().Offset(third) + 4711] ^= std::byte{4};
  EXPECT_EQ(Use(chain), 2u);
  EXPECT_EQ(hbm().counters().corrupt_parts, 1u);
  EXPECT_EQ(hbm().tier().parts(), 3u);
  const auto again = world->Store(peer, chain);
  EXPECT_EQ(again[2], PartResult::kOk);
  EXPECT_EQ(Use(chain), 4u);
}

// The other way: what is damaged in RAM is not spread.
TEST_F(HbmTierTest, ChangedBytesInRamDoNotGoUp) {
  Start(8 * kMiB, 16 * kMiB);
  const ChainRequest chain = Stored(1);
  Use(chain);
  const SlotId slot = world->shard->ram().Find(chain.blocks[0].hash, {});
  world->shard->ram().data(slot)[99] ^= std::byte{1};
  ChainRequest plan = chain;
  plan.plan_id = ++plan_id;
  world->Ask(peer, FrameType::kPlan, plan);
  Turns(50);
  EXPECT_EQ(hbm().tier().parts(), 0u);
  EXPECT_EQ(hbm().counters().corrupt_parts, 1u);
}

TEST_F(HbmTierTest, WhatLeavesTheDeviceAndIsNowhereElseGoesDown) {
  Start(16 * kMiB, 4 * kMiB);
  std::vector<ChainRequest> chains;
  for (int i = 0; i < 4; ++i) {
    chains.push_back(Stored(4));
    Use(chains.back()), Use(chains.back());
  }
  ASSERT_GT(hbm().tier().parts(), 8u);
  world->shard->ram().DropAll();  // Only the device has them now.
  const uint64_t there = hbm().tier().parts();
  for (int i = 0; i < 3; ++i) {
    const ChainRequest more = Stored(4);
    Use(more), Use(more);
  }
  EXPECT_GT(hbm().counters().demoted_parts, 0u);
  EXPECT_EQ(hbm().counters().dropped_demotions, 0u);
  uint64_t hits = 0;
  for (const ChainRequest& chain : chains) {
    for (const BlockKey& block : chain.blocks) hits += Use(world->Chain({block}, kPart));
  }
  EXPECT_EQ(hits, there);
}

// Nor does what is damaged on the device come to RAM when it has to leave.
TEST_F(HbmTierTest, ChangedBytesOnTheDeviceDoNotGoDown) {
  Start(16 * kMiB, 4 * kMiB);
  for (int i = 0; i < 4; ++i) {
    const ChainRequest chain = Stored(4);
    Use(chain), Use(chain);
  }
  world->shard->ram().DropAll();
  for (uint64_t at = 0; at < 4 * kMiB; at += 4096) DeviceBytes()[at] ^= std::byte{1};
  for (int i = 0; i < 3; ++i) {
    const ChainRequest more = Stored(4);
    Use(more), Use(more);
  }
  EXPECT_EQ(hbm().counters().demoted_parts, 0u);
  EXPECT_GT(hbm().counters().corrupt_parts, 0u);
}

TEST_F(HbmTierTest, DeviceRamAndDiskTogether) {
  Start(8 * kMiB, 4 * kMiB, /*with_disk=*/true);
  std::vector<ChainRequest> chains;
  for (int i = 0; i < 20; ++i) {
    chains.push_back(Stored(4));
    if (i % 3 == 0) Use(chains.back()), Use(chains.back());
  }
  for (int round = 0; round < 3; ++round) {
    for (const ChainRequest& chain : chains) EXPECT_EQ(Use(chain), 4u);
  }
  EXPECT_GT(hbm().counters().promoted_parts, 0u);
  EXPECT_EQ(hbm().counters().demoted_parts, 0u);  // The disk has them all.
  EXPECT_EQ(hbm().counters().corrupt_parts, 0u);
}

// One plan may want of all three.
TEST_F(HbmTierTest, OnePlanBringsFromTheDeviceAndFromTheDisk) {
  Start(8 * kMiB, 16 * kMiB, /*with_disk=*/true);
  const ChainRequest chain = Stored(8);
  const ChainRequest head = world->Chain({chain.blocks.begin(), chain.blocks.begin() + 3}, kPart);
  Use(head), Use(head);
  ASSERT_EQ(hbm().tier().parts(), 3u);
  for (int i = 0; i < 12; ++i) Stored(4);
  EXPECT_EQ(Use(chain), 8u);
  EXPECT_EQ(hbm().counters().staged_parts, 3u);
  EXPECT_EQ(world->shard->Stats().counters["nvme_staged_parts_total"], 5u);
}

// A hit waits for no more than a turn's checks, either way.
TEST_F(HbmTierTest, WhatHasMovedIsCheckedInTurns) {
  constexpr uint32_t kLarge = 1u << 20;
  constexpr int kTurns = 4 * (kLarge / kHbmCheckBytesPerTurn);
  Start(16 * kMiB, 16 * kMiB);
  ChainRequest chain = world->Chain(world->Blocks(4), kLarge);
  for (const PartResult result : world->Store(peer, chain)) ASSERT_EQ(result, PartResult::kOk);
  EXPECT_EQ(Use(chain), 4u);
  ChainRequest plan = chain;
  plan.plan_id = ++plan_id;
  plan.ttl_ms = 2000;
  world->Ask(peer, FrameType::kPlan, plan);
  EXPECT_EQ(world->Take<PlanReply>(FrameType::kPlanReply).hit_blocks, 4u);
  world->Release(peer, plan.plan_id);
  int turns = 0;
  for (; turns < 1000 && hbm().tier().parts() < 4; ++turns) Turns(1);
  EXPECT_GE(turns, kTurns - 2);  // Ask and Release turn as well.
  EXPECT_LE(turns, 2 * kTurns);
  world->shard->ram().DropAll();
  plan.plan_id = ++plan_id;
  world->Ask(peer, FrameType::kPlan, plan);
  for (turns = 0; turns < 1000 && !world->HasReply(FrameType::kPlanReply); ++turns) Turns(1);
  EXPECT_EQ(world->Take<PlanReply>(FrameType::kPlanReply).hit_blocks, 4u);
  EXPECT_GE(turns, kTurns - 2);
  EXPECT_LE(turns, 2 * kTurns);
  EXPECT_EQ(hbm().counters().corrupt_parts, 0u);
}

// Promotions take what the bandwidth allows, a second's worth at once; plans that wait do not wait for it.
TEST_F(HbmTierTest, MovesKeepToTheBandwidth) {
  Start(16 * kMiB, 16 * kMiB, false, /*rate=*/2 * uint64_t{kPart});
  const ChainRequest chain = Stored(16);
  ChainRequest plan = chain;
  for (int i = 0; i < 2; ++i) {
    plan.plan_id = ++plan_id;
    world->Ask(peer, FrameType::kPlan, plan);
    world->Release(peer, plan.plan_id);
  }
  Turns(20);
  EXPECT_EQ(hbm().tier().parts(), 2u);
  world->clock.Advance(kSecond);
  Turns(20);
  EXPECT_EQ(hbm().tier().parts(), 4u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(world->shard->ram().DropPart(chain.blocks[i].hash, {}).parts, 1u);
  EXPECT_EQ(Use(world->Chain({chain.blocks[0], chain.blocks[1]}, kPart)), 2u);
  EXPECT_EQ(hbm().counters().staged_parts, 2u);
}

TEST_F(HbmTierTest, DropsReachTheDevice) {
  Start(8 * kMiB, 16 * kMiB);
  const ChainRequest chain = Stored(4);
  Use(chain), Use(chain);
  world->DropAll(peer);
  EXPECT_EQ(hbm().tier().parts(), 0u);
  EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 0u);
}

TEST_F(HbmTierTest, AnEndHoldsInEveryTier) {
  Start(8 * kMiB, 16 * kMiB);
  ChainRequest chain = world->Chain(world->Blocks(4), kPart);
  chain.retention = {.ttl_s = 300};
  world->Store(peer, chain);
  chain.retention = {};
  Use(chain), Use(chain);
  ASSERT_EQ(hbm().tier().parts(), 4u);
  world->shard->ram().DropAll();
  EXPECT_EQ(Use(chain), 4u);
  world->shard->ram().DropAll();
  world->clock.Advance(301 * kSecond);
  Turns(20);
  EXPECT_EQ(Use(chain), 0u);
}

// F41: a device that is not there is an error that says so, and nothing is taken in its place.
TEST_F(HbmTierTest, ADiskBelowKeepsWhatTheDeviceLoses) {
  Start(8 * kMiB, 16 * kMiB, /*with_disk=*/true);
  const ChainRequest chain = Stored(4);
  Use(chain), Use(chain);
  ASSERT_EQ(hbm().tier().parts(), 4u);
  Turns(200);
  Start(8 * kMiB, 16 * kMiB, /*with_disk=*/true);
  EXPECT_EQ(hbm().tier().parts(), 0u);
  EXPECT_EQ(Use(chain), 4u);
}

// A slow device: RAM gives its room to whoever needs it, as without one.
TEST_F(HbmTierTest, WhatWaitsToGoUpHoldsNoRoom) {
  Start(8 * kMiB, 16 * kMiB, /*with_disk=*/false, /*rate=*/1);
  const ChainRequest chain = Stored(28);
  Use(chain), Use(chain);
  EXPECT_EQ(hbm().tier().parts(), 0u);
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
  for (int i = 0; i < 12; ++i) Stored(4);
  Turns(100);
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
}

TEST(DeviceArena, F41_ADeviceThatIsNotThereIsAnError) {
  std::string error;
  EXPECT_EQ(MakeCudaArena(4711, kMiB, error), nullptr);
  EXPECT_FALSE(error.empty());
}

// F22: what comes back from the device is its owner's still, and its owner's quota holds.
TEST_F(HbmTierTest, F22_WhatComesBackIsChargedToItsOwner) {
  Start(8 * kMiB, 16 * kMiB);
  peer = ConnectAs("mine");
  const ChainRequest first = Stored(4), second = Stored(4);
  for (const ChainRequest* chain : {&first, &second}) Use(*chain), Use(*chain);
  EXPECT_EQ(hbm().tier().parts(), 8u);
  peer = ConnectAs("other");
  for (int i = 0; i < 12; ++i) Stored(4);  // RAM forgets it.
  ASSERT_EQ(RowOf(Quota({}), "mine").used_bytes, 0u);
  Quota({.tenant = "mine", .limits = {.quota_bytes = 4 * uint64_t{kPart}, .reject_when_full = true}});
  peer = ConnectAs("mine");
  for (const ChainRequest* chain : {&first, &second}) {
    EXPECT_EQ(Use(*chain), 4u);
    EXPECT_EQ(RowOf(Quota({}), "mine").used_bytes, 4 * uint64_t{kPart});
    EXPECT_EQ(RowOf(Quota({}), "default").used_bytes, 0u);
  }
}

}  // namespace
}  // namespace cistern
