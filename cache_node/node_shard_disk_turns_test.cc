// What comes back from the disk is copied in turns: what may happen between them.
#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

constexpr uint32_t kLarge = 1u << 20;  // Some eight turns.
static_assert(kLarge > 4 * kDiskCopyBytesPerTurn);

class NodeShardDiskTurns : public ShardFixture {
 protected:
  NodeShardDiskTurns() {
    StartWithDisk();
    StoreChain();
    Settle();
  }
  void StoreChain() {
    chain = world->Chain(world->Blocks(2), kLarge);
    CISTERN_CHECK(Store(chain) == 2);
  }
  void DropFromRam() {
    for (const BlockKey& block : chain.blocks) CISTERN_CHECK(ram().Drop(ram().Find(block.hash, {})));
  }
  // Asks for the chain and stops as soon as the first of its parts is being copied.
  void PlanHalfway() {
    ChainRequest plan = chain;
    plan.plan_id = ++plan_id;
    plan.ttl_ms = 2000;
    world->Ask(peer, FrameType::kPlan, plan);
    plan_request = world->last_request;
    for (int i = 0; i < 100 && ram().writing_parts() == 0; ++i) Turn();
    ASSERT_EQ(ram().writing_parts(), 1u);
    ASSERT_EQ(ram().parts(), 0u);
  }
  uint64_t Copied() { return world->shard->disk()->log().writer().copied_bytes(); }
  // Stores it; what was copied into the log before its offer was answered.
  uint64_t StoreCounting(const ChainRequest& chain_to_store) {
    const uint64_t before = Copied();
    world->Ask(peer, FrameType::kOffer, chain_to_store);
    const uint64_t copied = Copied() - before;
    std::vector<std::byte> bytes;
    std::vector<size_t> which;
    const auto offer = world->Take<OfferReply>(FrameType::kOfferReply);
    const PutRequest put = world->PutFor(chain_to_store, offer, bytes, which);
    world->Ask(peer, FrameType::kPut, put, 0, bytes);
    const size_t parts = chain_to_store.blocks.size() * std::max<size_t>(chain_to_store.coords.size(), 1);
    EXPECT_EQ(world->Take<PutReply>(FrameType::kPutReply).results.size(), parts);
    return copied;
  }
  uint32_t PlanHits() {
    world->last_request = plan_request;
    for (int i = 0; i < 100 && !world->HasReply(FrameType::kPlanReply); ++i) Turn();
    const auto reply = world->Take<PlanReply>(FrameType::kPlanReply);
    for (size_t i = 0; i < reply.parts.size(); ++i) {
      EXPECT_TRUE(world->Verify(reply.parts[i], chain.blocks[i])) << i;
      const auto bytes = ShardWorld::PartBytes(chain.blocks[i], {}, kLarge);
      EXPECT_EQ(std::memcmp(ram().data(ram().Find(chain.blocks[i].hash, {})), bytes.data(), kLarge), 0) << i;
    }
    world->Release(peer, plan_id);
    Turn();
    EXPECT_EQ(ram().writing_parts(), 0u);
    EXPECT_EQ(ram().leased_parts(), 0u);
    return reply.hit_blocks;
  }

  ChainRequest chain;
  uint64_t plan_request = 0;
};

TEST_F(NodeShardDiskTurns, OthersAreAnsweredBetweenThePiecesOfAPart) {
  DropFromRam();
  PlanHalfway();
  // At most so much a turn: look-ups are answered in each of those that are left, and take one themselves.
  const uint64_t turns = (2 * uint64_t{kLarge} / kDiskCopyBytesPerTurn - 1) / 2;
  for (uint64_t turn = 0; turn < turns; ++turn) {
    world->last_request = plan_request;
    ASSERT_FALSE(world->HasReply(FrameType::kPlanReply)) << turn;
    EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 2u);
    Turn();
  }
  EXPECT_EQ(PlanHits(), 2u);
  EXPECT_EQ(Counter("nvme_staged_parts_total"), 2u);
}

// F04: what is dropped between two pieces does not come back with the last of them.
TEST_F(NodeShardDiskTurns, F04_WhatIsDroppedMeanwhileIsGone) {
  DropFromRam();
  PlanHalfway();
  world->DropAll(peer);
  EXPECT_EQ(PlanHits(), 0u);
  EXPECT_EQ(ram().parts(), 0u);
  EXPECT_EQ(Counter("nvme_staged_parts_total"), 0u);
}

TEST_F(NodeShardDiskTurns, AWriterThatIsFasterServesThePlan) {
  DropFromRam();
  PlanHalfway();
  // As another writer would, whose offer came before the part was on disk.
  const BlockKey& block = chain.blocks[1];  // The deepest was written first, and is read first.
  const auto bytes = ShardWorld::PartBytes(block, {}, kLarge);
  SlotId slot = kNoSlot;
  const uint32_t tick = RamTier::TickOf(world->clock.Now());
  ASSERT_EQ(ram().Reserve(kLarge, tick, slot), PartResult::kOk);
  std::memcpy(ram().data(slot), bytes.data(), kLarge);
  ASSERT_EQ(ram().Publish(slot, {.block = block, .coord = {}}, chain.layout, kLarge,
                          Crc32c(bytes.data(), kLarge), 0, tick),
            PartResult::kOk);
  EXPECT_EQ(PlanHits(), 2u);
  EXPECT_EQ(Counter("nvme_stage_failed_parts_total"), 0u);
}

// F01: a plan looks once at what the tiers below have, as the count of what it refuses shows.
TEST_F(NodeShardDiskTurns, F01_APlanJudgesWhatIsBelowOnce) {
  CISTERN_CHECK(ram().Drop(ram().Find(chain.blocks[1].hash, {})));
  ChainRequest plan = chain;
  plan.blocks[1].fingerprint ^= 1;
  plan.plan_id = ++plan_id;
  plan.ttl_ms = 2000;
  world->Ask(peer, FrameType::kPlan, plan, kFlagInParts);
  EXPECT_EQ(world->Take<PlanReply>(FrameType::kPlanReply).hit_blocks, 1u);
  EXPECT_EQ(Counter("nvme_collisions_rejected_total"), 1u);
}

// What RAM has no more room for was written in turns before: no offer waits for whole parts to be copied.
TEST_F(NodeShardDiskTurns, NoEvictionCopiesAPart) {
  disk_options.write_through = false;
  StartWithDisk();
  world->Blocks(2);  // Those of the fixture, which are on disk.
  constexpr uint32_t kChains = 30, kBlocks = 2;
  std::vector<ChainRequest> chains;
  uint64_t most = 0;
  for (uint32_t i = 0; i < kChains; ++i) {
    chains.push_back(world->Chain(world->Blocks(kBlocks), kPart));
    const uint64_t copied = StoreCounting(chains.back());
    if (i > kRam / kPart / kBlocks) {  // The first eviction finds nothing written.
      EXPECT_EQ(copied, 0u) << i;
    }
    for (int turn = 0; turn < 50; ++turn) {
      const uint64_t before = Copied();
      Turn();
      most = std::max(most, Copied() - before);
    }
  }
  EXPECT_EQ(most, kDiskCopyBytesPerTurn);
  uint32_t hits = 0;
  for (const ChainRequest& one : chains) hits += Use(one);
  EXPECT_EQ(hits, kChains * kBlocks);
  EXPECT_EQ(Counter("nvme_demoted_parts_total"), Counter("nvme_stored_parts_total"));
}

// Nor for tails, which go as one: by themselves, or with the block they hang on.
TEST_F(NodeShardDiskTurns, NoEvictionCopiesATail) {
  constexpr uint64_t kRoom = 16 * kMiB;
  disk_options.write_through = false;
  StartWithDisk(kRoom);
  world->Blocks(2);  // Those of the fixture, which are on disk.
  constexpr uint32_t kTails = 60;
  std::vector<ChainRequest> tails;
  uint64_t most = 0;
  for (uint32_t i = 0; i < kTails; ++i) {
    const ChainRequest block = world->Chain(world->Blocks(1), kPart);
    ChainRequest tail = world->Chain(block.blocks, kPart, {{2, 0, 0}, {2, 1, 0}, {3, 0, 0}});
    tail.coord_bytes = {kPart, kPart, kPart};
    tail.tail_parts = 3;
    const uint64_t copied = StoreCounting(block) + StoreCounting(tail);
    if (i > kRoom / kPart / 4) {  // The first eviction finds nothing written.
      EXPECT_EQ(copied, 0u) << i;
    }
    for (int turn = 0; turn < 50; ++turn) {
      const uint64_t before = Copied();
      Turn();
      most = std::max(most, Copied() - before);
    }
    tails.push_back(std::move(tail));
  }
  EXPECT_EQ(most, kDiskCopyBytesPerTurn);
  uint32_t hits = 0;
  for (const ChainRequest& tail : tails) {
    hits += Plan(tail).hit_blocks;
    world->Release(peer, plan_id);
    Turn();
  }
  EXPECT_EQ(hits, kTails);
}

// Tails that newer ones replaced are not written ahead, and do not count as such: they are looked at all the
// same, each time that another tenant's quota makes room.
TEST_F(NodeShardDiskTurns, CleanAheadLooksAtABoundedNumber) {
  disk_options.write_through = false;
  StartWithDisk(512 * kMiB);
  constexpr uint32_t kSmall = 4096, kTails = 2 * kCleanAheadLooksMax;
  for (uint32_t i = 0; i < kTails; ++i) {
    ChainRequest tail = world->Chain(world->Blocks(1), kSmall, {{2, 0, 0}});
    tail.coord_bytes = {kSmall};
    tail.tail_parts = 1;
    ASSERT_EQ(Store(tail), 1u);
    ram().SupersedeTail(tail.blocks[0].hash, 1);
  }
  Quota({.tenant = "small", .limits = {.quota_bytes = 4 * uint64_t{kSmall}}});
  const PeerId other = ConnectAs("small");
  // At most one look ahead follows an eviction.
  uint64_t most = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t looks = disk().counters().clean_ahead_looks, evicted = Counter("evicted_parts_total");
    world->Store(other, world->Chain(world->Blocks(1), kSmall));
    for (int turn = 0; turn < 3; ++turn) Turn();
    const uint64_t looked = disk().counters().clean_ahead_looks - looks;
    EXPECT_LE(looked, kCleanAheadLooksMax * (Counter("evicted_parts_total") - evicted)) << i;
    most = std::max(most, looked);
  }
  EXPECT_EQ(most, kCleanAheadLooksMax);
}

// An endurance budget is for what has to go alone.
TEST_F(NodeShardDiskTurns, AWriteBudgetIsNotSpentAhead) {
  disk_options.daily_write_bytes = uint64_t{1} << 40;
  disk_options.write_through = false;
  StartWithDisk();
  for (int i = 0; i < 12; ++i) {
    Store(world->Chain(world->Blocks(4), kPart));
    const uint64_t stored = Counter("nvme_stored_parts_total");
    for (int turn = 0; turn < 100; ++turn) Turn();
    EXPECT_EQ(Counter("nvme_stored_parts_total"), stored);
  }
  EXPECT_GT(Counter("nvme_stored_parts_total"), 0u);
}

// A part whose record leaves the log's memory between two pieces is read from the disk.
TEST_F(NodeShardDiskTurns, ARecordThatLeavesMemoryMeanwhileIsReadFromDisk) {
  DropFromRam();
  memory_disk->faults.delay = 1;
  StoreChain();
  for (int i = 0; i < 100 && world->shard->disk()->waiting_bytes() > 0; ++i) Turn();
  DropFromRam();
  PlanHalfway();
  EXPECT_EQ(Counter("nvme_stage_reads_total"), 0u);
  memory_disk->faults.delay = 0;
  EXPECT_EQ(PlanHits(), 2u);
  EXPECT_GT(Counter("nvme_stage_reads_total"), 0u);
  EXPECT_EQ(Counter("corruption_payload_total"), 0u);
}

}  // namespace
}  // namespace cistern
