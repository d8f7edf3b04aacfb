#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

class NodeShardDisk : public ShardFixture {
 protected:
  NodeShardDisk() { StartWithDisk(); }
  TierStats Nvme() { return world->shard->Stats().tiers.at(1); }
};

// F42: twice what RAM holds is stored; all of it hits, from RAM or from disk.
TEST_F(NodeShardDisk, F42_WhatRamHasNoRoomForComesBackFromDisk) {
  const auto blocks = world->Blocks(64);
  std::vector<ChainRequest> chains;
  for (size_t i = 0; i < blocks.size(); i += 4) {
    chains.push_back(world->Chain(
        {blocks.begin() + static_cast<long>(i), blocks.begin() + static_cast<long>(i) + 4}, kPart));
    for (const PartResult result : world->Store(peer, chains.back())) EXPECT_EQ(result, PartResult::kOk);
    Settle();
  }
  EXPECT_EQ(Nvme().tier, "nvme");
  EXPECT_EQ(Nvme().parts, 64u);
  EXPECT_EQ(Nvme().used_bytes, uint64_t{64} * kPart);
  for (const ChainRequest& chain : chains) {
    EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 4u);
    EXPECT_EQ(Use(chain), 4u);
  }
  EXPECT_EQ(Counter("offload_dropped_total"), 0u);
  EXPECT_GT(Counter("nvme_staged_parts_total"), 30u);
  EXPECT_LT(Counter("nvme_stage_reads_total"),
            Counter("nvme_staged_parts_total"));  // Neighbours are read together.
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
}

// Stored again, what is on disk alone is not taken again.
TEST_F(NodeShardDisk, OffersOfPartsOnDiskAreAnsweredExists) {
  const auto first = world->Chain(world->Blocks(8), kPart);
  world->Store(peer, first);
  Settle();
  for (int i = 0; i < 8; ++i) world->Store(peer, world->Chain(world->Blocks(8), kPart)), Settle();
  EXPECT_EQ(world->shard->ram().Find(first.blocks[7].hash, {}), kNoSlot);
  for (const PartResult result : world->Store(peer, first)) EXPECT_EQ(result, PartResult::kExists);
}

TEST_F(NodeShardDisk, OnDemotionWritesOnlyWhatIsEvicted) {
  disk_options.write_through = false;
  StartWithDisk();
  const auto first = world->Chain(world->Blocks(8), kPart);
  world->Store(peer, first);
  Settle();
  EXPECT_EQ(Nvme().parts, 0u);
  for (int i = 0; i < 8; ++i) world->Store(peer, world->Chain(world->Blocks(8), kPart)), Settle();
  EXPECT_GT(Nvme().parts, 8u);
  EXPECT_EQ(Counter("nvme_demoted_parts_total"), Counter("nvme_stored_parts_total"));
  EXPECT_EQ(Use(first), 8u);
}

// F35, F33: after a kill what was durable hits, with the right bytes, and while the rest is still scanned.
TEST_F(NodeShardDisk, F35_AWarmRestartFindsWhatWasDurable) {
  const auto blocks = world->Blocks(16);
  const auto chain = world->Chain(blocks, kPart);
  world->Store(peer, chain);
  Settle();
  StartWithDisk();
  EXPECT_EQ(world->shard->ram().parts(), 0u);
  EXPECT_EQ(Nvme().parts, 16u);
  EXPECT_EQ(Use(chain), 16u);
}

// F37, F10: a flipped bit on disk is a miss, counted, and the block can be stored again.
TEST_F(NodeShardDisk, F37_ADamagedRecordIsAMissAndCanBeStoredAgain) {
  const auto chain = world->Chain(world->Blocks(4), kPart);
  world->Store(peer, chain);
  Settle();
  StartWithDisk();
  // The deepest block was written first.
  std::byte byte{};
  MemoryFiles::Get(files->files[0], 3 * kPageBytes + 5, &byte, 1);
  byte ^= std::byte{1};
  MemoryFiles::Set(files->files[0], 3 * kPageBytes + 5, &byte, 1);
  EXPECT_EQ(Use(chain), 3u);
  EXPECT_EQ(Counter("corruption_payload_total"), 1u);
  EXPECT_EQ(world->Store(peer, chain)[3], PartResult::kOk);
  EXPECT_EQ(Use(chain), 4u);
}

TEST_F(NodeShardDisk, F10_ReadErrorsAreMissesAndWriteErrorsKeepPartsInRam) {
  const auto chain = world->Chain(world->Blocks(4), kPart);
  world->Store(peer, chain);
  Settle();
  StartWithDisk();
  memory_disk->faults.reads_fail = true;
  EXPECT_EQ(Use(chain), 0u);
  EXPECT_GT(Counter("nvme_read_errors_total"), 0u);
  memory_disk->faults.reads_fail = false;
  memory_disk->faults.writes_fail = true;
  for (const PartResult result : world->Store(peer, chain)) EXPECT_EQ(result, PartResult::kOk);
  Settle();
  EXPECT_EQ(Counter("nvme_degraded"), 1u);
  EXPECT_EQ(Nvme().parts, 0u);
  EXPECT_EQ(Use(chain), 4u);  // From RAM.
  memory_disk->faults.writes_fail = false;
  for (int i = 0; i < 20'000 && Counter("nvme_degraded") == 1; ++i) Turn();
  EXPECT_EQ(Counter("nvme_degraded"), 0u);
}

// F04: what is dropped is gone at once, on disk too, also for a plan that was waiting for it, and after a
// restart.
TEST_F(NodeShardDisk, F04_DroppedIsDroppedOnDiskToo) {
  const auto chain = world->Chain(world->Blocks(8), kPart);
  world->Store(peer, chain);
  Settle();
  StartWithDisk();
  memory_disk->faults.delay = 0.95;
  ChainRequest plan = chain;
  plan.plan_id = ++plan_id;
  world->Ask(peer, FrameType::kPlan, plan);
  const uint64_t plan_request = world->last_request;
  world->DropAll(peer);
  EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 0u);
  memory_disk->faults.delay = 0;
  for (int i = 0; i < 100; ++i) Turn();
  world->last_request = plan_request;
  EXPECT_EQ(world->Take<PlanReply>(FrameType::kPlanReply).hit_blocks, 0u);
  Settle();
  StartWithDisk();
  EXPECT_EQ(world->Lookup(peer, chain).hit_blocks, 0u);
}

// F09: more plans wait than reads may be under way; each gets its own bytes.
TEST_F(NodeShardDisk, F09_MorePlansThanReadsAtOnce) {
  StartWithDisk(32 * kMiB);
  std::vector<ChainRequest> chains;
  for (uint32_t i = 0; i < 2 * kReadsMax; ++i) {
    chains.push_back(world->Chain(world->Blocks(1), kPart));
    world->Store(peer, chains.back());
    Settle();
  }
  StartWithDisk(32 * kMiB);
  memory_disk->faults.delay = 0.5;
  memory_disk->faults.short_io = 0.2;
  std::vector<uint64_t> requests;
  for (const ChainRequest& chain : chains) {
    ChainRequest plan = chain;
    plan.plan_id = ++plan_id;
    world->Ask(peer, FrameType::kPlan, plan);
    requests.push_back(world->last_request);
  }
  for (int i = 0; i < 5000; ++i) Turn();
  for (size_t i = 0; i < chains.size(); ++i) {
    world->last_request = requests[i];
    const auto reply = world->Take<PlanReply>(FrameType::kPlanReply);
    ASSERT_EQ(reply.hit_blocks, 1u) << i;
    const auto bytes = ShardWorld::PartBytes(chains[i].blocks[0], {}, kPart);
    EXPECT_EQ(std::memcmp(world->shard->arena().data() + reply.parts[0].offset, bytes.data(), bytes.size()),
              0);
  }
}

// More than may be wanted at once: the rest is a miss, and says so; nothing waits for it.
TEST_F(NodeShardDisk, WhatIsTooManyToStageIsAMiss) {
  const auto chain = world->Chain(world->Blocks(8), kPart);
  world->Store(peer, chain);
  Settle();
  disk_options.stage_wants_max = 5;
  StartWithDisk();
  for (const uint32_t hit_blocks : {5u, 8u}) {
    ChainRequest plan = chain;
    plan.plan_id = ++plan_id;
    world->Ask(peer, FrameType::kPlan, plan);
    for (int i = 0; i < 200; ++i) Turn();
    EXPECT_EQ(world->Take<PlanReply>(FrameType::kPlanReply).hit_blocks, hit_blocks);
    EXPECT_EQ(Counter("nvme_stage_failed_parts_total"), 3u);
  }
}

// F58's like for a reader that goes away while its plan waits: nothing stays leased.
TEST_F(NodeShardDisk, APeerThatLeavesWhileItsPlanWaitsHoldsNothing) {
  const auto chain = world->Chain(world->Blocks(8), kPart);
  world->Store(peer, chain);
  Settle();
  StartWithDisk();
  memory_disk->faults.delay = 0.95;
  ChainRequest plan = chain;
  plan.plan_id = ++plan_id;
  world->Ask(peer, FrameType::kPlan, plan);
  world->transport.Fence(peer, absl::UnavailableError("gone"));
  memory_disk->faults.delay = 0;
  for (int i = 0; i < 200; ++i) Turn();
  EXPECT_EQ(world->shard->ram().leased_parts(), 0u);
  EXPECT_EQ(world->shard->ram().writing_parts(), 0u);
}

// The log cannot keep up: offers are held back, and nothing is lost on the way to disk (F42).
TEST_F(NodeShardDisk, F42_WritersWaitForASlowDisk) {
  memory_disk->faults.delay = 0.97;
  std::vector<ChainRequest> chains;
  std::vector<uint64_t> requests;
  for (int i = 0; i < 24; ++i) {
    chains.push_back(world->Chain(world->Blocks(4), kPart));
    world->Ask(peer, FrameType::kOffer, chains.back());
    for (int turn = 0; turn < 2000 && !world->HasReply(FrameType::kOfferReply); ++turn) Turn();
    const auto offer = world->Take<OfferReply>(FrameType::kOfferReply);
    std::vector<std::byte> bytes;
    std::vector<size_t> which;
    const PutRequest put = world->PutFor(chains.back(), offer, bytes, which);
    ASSERT_EQ(which.size(), 4u);
    world->Ask(peer, FrameType::kPut, put, 0, bytes);
    world->Take<PutReply>(FrameType::kPutReply);
  }
  EXPECT_GT(Counter("held_offers_total"), 0u);
  memory_disk->faults.delay = 0;
  Settle();
  EXPECT_EQ(Counter("offload_dropped_total") + Nvme().parts, 96u);
  EXPECT_EQ(Counter("offload_dropped_total"), 0u);
}

// The log knows as many coordinates as it can, of what is on disk; RAM has begun anew. A part of another is
// not taken as stored, and the reason is counted.
TEST_F(NodeShardDisk, PartsOfTooManyCoordinatesAreCountedAsNotStored) {
  StartWithDisk();
  const std::vector<std::byte> bytes(64, std::byte{7});
  RecordHeader header;
  header.block = world->Blocks(1)[0];
  for (uint32_t coord = 0; coord < kCoordsSeenMax; ++coord) {
    header.parts.push_back({.coord = PartCoord::Unpack(coord),
                            .at = coord % kPartsPerRecordMax * kPartAlign,
                            .length = kPartAlign,
                            .crc = Crc32c(bytes.data(), bytes.size())});
    if (header.parts.size() < kPartsPerRecordMax && coord + 1 < kCoordsSeenMax) continue;
    const std::vector<const std::byte*> data(header.parts.size(), bytes.data());
    header.parts.front().at = 0;
    while (disk().log().Append(header, data) != DiskLog::Appended::kOk) Turn();
    header.parts.clear();
  }
  EXPECT_EQ(Store(world->Chain(world->Blocks(1), kPart, {{200, 0, 0}})), 1u);
  EXPECT_EQ(Store(world->Chain(world->Blocks(1), kPart, {{0, 0, 1}})), 1u);
  Settle();
  EXPECT_EQ(Counter("offload_dropped_names_total"), 1u);
  EXPECT_EQ(Counter("offload_dropped_total"), 1u);
  EXPECT_EQ(Counter("nvme_stored_parts_total"), 1u);
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(NodeShardDisk, TheWriteBudgetIsKept) {
  disk_options.daily_write_bytes = uint64_t{24} * 2 << 20;  // 2 MiB an hour.
  StartWithDisk();
  for (int i = 0; i < 4; ++i) world->Store(peer, world->Chain(world->Blocks(4), kPart)), Settle();
  EXPECT_EQ(Nvme().parts, 7u);  // 264 KiB each.
  EXPECT_EQ(Counter("offload_dropped_budget_total"), 9u);
  EXPECT_EQ(Counter("offload_dropped_total"), 9u);
}

// --- tails: histories with what a boundary needs beside them

ChainRequest TailAt(ShardWorld& world, const BlockKey& block, std::vector<PartCoord> parts, bool junction) {
  ChainRequest request = world.Chain({block}, kPart, std::move(parts));
  for (const PartCoord& coord : request.coords)
    request.coord_bytes.push_back(coord.group == 2 ? kPart : 3000);
  request.tail_parts = 3;
  request.junction = junction;
  return request;
}

class NodeShardDiskTails : public NodeShardDisk {
 protected:
  const std::vector<PartCoord> all{{2, 0, 0}, {2, 1, 0}, {3, 0, 0}};

  // What a look-up of this chain is told about whole tails, one bit a block.
  uint64_t TailsOf(const ChainRequest& chain) {
    const LookupReply reply = world->Lookup(peer, chain, kFlagDetail);
    EXPECT_EQ(reply.hit_blocks, chain.blocks.size());
    return reply.detail.tails.empty() ? 0 : reply.detail.tails[0];
  }
  // Whether a plan of the whole tail hits; its bytes are checked.
  bool PlanTail(const BlockKey& block) {
    const ChainRequest plan = TailAt(*world, block, all, false);
    const PlanReply reply = Plan(plan);
    for (size_t i = 0; i < reply.parts.size(); ++i) {
      const auto bytes = ShardWorld::PartBytes(block, all[i], plan.coord_bytes[i]);
      EXPECT_TRUE(world->Verify(reply.parts[i], block)) << i;
      EXPECT_EQ(std::memcmp(world->shard->arena().data() + reply.parts[i].offset, bytes.data(), bytes.size()),
                0);
    }
    world->Release(peer, plan_id);
    Turn();
    return reply.hit_blocks == 1;
  }
  void Flood() {
    for (int i = 0; i < 24; ++i) world->Store(peer, world->Chain(world->Blocks(8), kPart)), Settle();
  }
};

TEST_F(NodeShardDiskTails, ComeBackAfterARestartWithTheirJunctions) {
  const auto chain = world->Chain(world->Blocks(4), kPart);
  world->Store(peer, chain);
  world->Store(peer, TailAt(*world, chain.blocks[1], {{2, 0, 0}, {3, 0, 0}}, true));
  Settle();
  StartWithDisk();
  EXPECT_EQ(TailsOf(chain), 0u) << "a tail that lacks a part";
  EXPECT_FALSE(PlanTail(chain.blocks[1]));
  EXPECT_EQ(world->Lookup(peer, TailAt(*world, chain.blocks[1], {{2, 0, 0}}, true)).hit_blocks, 0u);
  // Another rank's share makes it whole, in RAM and on disk together.
  for (const PartResult result : world->Store(peer, TailAt(*world, chain.blocks[1], all, true)))
    EXPECT_TRUE(result == PartResult::kOk || result == PartResult::kExists);
  EXPECT_EQ(TailsOf(chain), 2u);
  world->Store(peer, TailAt(*world, chain.blocks[3], all, false));
  Settle();
  StartWithDisk();
  EXPECT_EQ(Nvme().parts, 10u);
  EXPECT_EQ(TailsOf(chain), 2u + 8u);
  EXPECT_TRUE(PlanTail(chain.blocks[1]));
  EXPECT_TRUE(PlanTail(chain.blocks[3]));
  RamTier& ram = world->shard->ram();
  EXPECT_EQ(ram.TailMarkOf(ram.Find(chain.blocks[1].hash, {3, 0, 0})), (TailMark{3, true}));
  EXPECT_EQ(ram.TailMarkOf(ram.Find(chain.blocks[3].hash, {3, 0, 0})), (TailMark{3, false}));
}

TEST_F(NodeShardDiskTails, AreDemotedAsOneUnlessTheyHaveANewerOne) {
  disk_options.write_through = false;
  StartWithDisk(24 * kMiB);
  const auto chain = world->Chain(world->Blocks(3), kPart);
  world->Store(peer, chain);
  for (const BlockKey& block : chain.blocks) world->Store(peer, TailAt(*world, block, all, false));
  NoteRequest note;
  note.superseded = {{chain.blocks[0].hash, 5}};
  world->Ask(peer, FrameType::kNote, note);
  Flood();
  EXPECT_EQ(world->shard->ram().tails(), 0u);
  EXPECT_EQ(TailsOf(chain), 4u + 2u);
  EXPECT_TRUE(PlanTail(chain.blocks[2]));
  EXPECT_EQ(Use(chain), 3u);
}

// A tail of which the disk loses a part is a miss as a whole; dropped, it stays dropped.
TEST_F(NodeShardDiskTails, GoAsOneWithALostPartAndWithADrop) {
  const auto chain = world->Chain(world->Blocks(2), kPart);
  world->Store(peer, chain);
  for (const BlockKey& block : chain.blocks) world->Store(peer, TailAt(*world, block, all, false));
  Settle();
  StartWithDisk();
  const DiskEntry place = *disk().log().Find(chain.blocks[0].hash, {3, 0, 0});
  disk().log().Forget(chain.blocks[0].hash, {3, 0, 0}, place, DiskLog::Why::kPayload);
  EXPECT_EQ(TailsOf(chain), 2u);
  EXPECT_FALSE(PlanTail(chain.blocks[0]));
  world->Ask(peer, FrameType::kDrop, DropRequest{.all = true, .blocks = {}});
  world->Take<DropReply>(FrameType::kDropReply);
  world->Store(peer, chain);
  EXPECT_EQ(TailsOf(chain), 0u);
  Settle();
  StartWithDisk();
  EXPECT_EQ(TailsOf(chain), 0u);
}

}  // namespace
}  // namespace cistern
