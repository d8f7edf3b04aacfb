// Parts of several sizes, tails, notes and reasons of a shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

using ::testing::Each;

constexpr uint64_t kMiB = 1u << 20;
constexpr uint32_t kPart = 65536;  // A slab of 4 MiB holds parts of one size.

// Two history groups of different sizes.
ChainRequest History(ShardWorld& w, const std::vector<BlockKey>& blocks) {
  ChainRequest request = w.Chain(blocks, kPart, {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}});
  request.coord_bytes = {kPart, kPart, 5000};
  return request;
}
// A tail of two groups at the end of a block: `parts` of its three.
ChainRequest Tail(ShardWorld& w, const BlockKey& block,
                  std::vector<PartCoord> parts = {{2, 0, 0}, {2, 0, 64}, {3, 0, 0}}) {
  ChainRequest request = w.Chain({block}, kPart, std::move(parts));
  for (const PartCoord& coord : request.coords)
    request.coord_bytes.push_back(coord.span == 64 ? 3000 : 20000);
  request.tail_parts = 3;
  return request;
}
uint64_t Counter(ShardWorld& w, const char* name) { return w.shard->Stats().counters.at(name); }

TEST(NodeShardTails, BlocksOfSeveralPartSizesHitWithAllTheirParts) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = History(w, w.Blocks(4));
  EXPECT_THAT(w.Store(peer, chain), Each(PartResult::kOk));
  const PlanReply plan = w.Plan(peer, chain, 1);
  ASSERT_EQ(plan.hit_blocks, 4u);
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    EXPECT_EQ(plan.parts[i].length, chain.BytesOf(i % 3));
    EXPECT_TRUE(w.Verify(plan.parts[i], chain.blocks[i / 3]));
  }
  ChainRequest other = chain;  // F05: the same key asked with another length.
  other.coord_bytes[2] = 5008;
  const LookupReply lookup = w.Lookup(peer, other, kFlagDetail);
  EXPECT_EQ(lookup.hit_blocks, 0u);
  EXPECT_EQ(lookup.stopped_by, PartResult::kLayout);
  EXPECT_EQ(lookup.detail.why, MissReason::kLayout);
}

TEST(NodeShardTails, F07_ABlockLacksWhatAnyOfItsGroupsLacks) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest all = History(w, w.Blocks(2));
  ChainRequest most = all;
  most.coords.pop_back();
  most.coord_bytes.pop_back();
  EXPECT_THAT(w.Store(peer, most), Each(PartResult::kOk));
  EXPECT_EQ(w.Lookup(peer, most).hit_blocks, 2u);
  EXPECT_EQ(w.Lookup(peer, all).hit_blocks, 0u);
}

TEST(NodeShardTails, ATailIsThereWithItsLastPartAndNotBefore) {
  ShardWorld w(16 * kMiB);
  const PeerId peer = w.Connect(), other = w.Connect();
  const auto blocks = w.Blocks(3);
  EXPECT_THAT(w.Store(peer, History(w, blocks)), Each(PartResult::kOk));
  const ChainRequest tail = Tail(w, blocks[1]);
  // Two ranks write their shares.
  EXPECT_THAT(w.Store(peer, Tail(w, blocks[1], {{2, 0, 0}, {3, 0, 0}})), Each(PartResult::kOk));
  EXPECT_THAT(w.Lookup(peer, History(w, blocks), kFlagDetail).detail.tails, Each(0u));
  EXPECT_EQ(w.Plan(peer, Tail(w, blocks[1], {{2, 0, 0}}), 1).hit_blocks, 0u)
      << "a part, but not of a whole tail";
  EXPECT_EQ(w.Lookup(peer, tail, kFlagDetail).detail.why, MissReason::kNoTail);
  EXPECT_THAT(w.Store(other, Tail(w, blocks[1], {{2, 0, 64}})), Each(PartResult::kOk));
  const LookupReply lookup = w.Lookup(peer, History(w, blocks), kFlagDetail);
  EXPECT_THAT(lookup.detail.tails, testing::ElementsAre(2u));
  const PlanReply plan = w.Plan(peer, tail, 2);
  ASSERT_EQ(plan.hit_blocks, 1u);
  for (const PartDescriptor& part : plan.parts) EXPECT_TRUE(w.Verify(part, blocks[1]));
  EXPECT_THAT(w.Store(peer, tail), Each(PartResult::kExists));
}

TEST(NodeShardTails, ATailGoesAsOneAndBeforeItsBlock) {
  ShardWorld w(16 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(1);
  EXPECT_THAT(w.Store(peer, History(w, blocks)), Each(PartResult::kOk));
  EXPECT_THAT(w.Store(peer, Tail(w, blocks[0])), Each(PartResult::kOk));
  EXPECT_EQ(w.shard->ram().tails(), 1u);
  RamTier& ram = w.shard->ram();
  ram.Drop(ram.Find(blocks[0].hash, {3, 0, 0}));
  EXPECT_EQ(ram.tails(), 0u);
  EXPECT_EQ(ram.parts(), 3u) << "the history stays";
  EXPECT_THAT(w.Store(peer, Tail(w, blocks[0])), Each(PartResult::kOk));
  ram.Drop(ram.Find(blocks[0].hash, {0, 1, 0}));
  EXPECT_EQ(ram.tails(), 0u);
  EXPECT_EQ(ram.parts(), 2u);
}

TEST(NodeShardTails, ALeasedTailOutlivesItsDropForItsReaderAlone) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(1);
  w.Store(peer, Tail(w, blocks[0]));
  const PlanReply plan = w.Plan(peer, Tail(w, blocks[0]), 1);
  const DropReply dropped = w.DropAll(peer);
  EXPECT_EQ(dropped.dropped_parts, 0u);
  EXPECT_EQ(dropped.kept_parts, 3u);
  EXPECT_EQ(w.Lookup(peer, Tail(w, blocks[0])).hit_blocks, 0u);
  for (const PartDescriptor& part : plan.parts) EXPECT_TRUE(w.Verify(part, blocks[0]));
  w.Release(peer, 1);
  EXPECT_EQ(w.shard->ram().doomed_parts(), 0u);
}

TEST(NodeShardTails, ATailThatHasANewerOneGoesFirstUnlessPromptsPartThere) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(3);
  for (const BlockKey& block : blocks) EXPECT_THAT(w.Store(peer, Tail(w, block)), Each(PartResult::kOk));
  const auto supersede = [&](const BlockKey& block, uint64_t successor) {
    NoteRequest note;
    note.superseded = {{block.hash, successor}};
    w.Ask(peer, FrameType::kNote, note);
  };
  supersede(blocks[0], 5);
  supersede(blocks[1], 5);
  supersede(blocks[1], 6);  // Prompts part here; but its first note has marked it, so it must be used again.
  EXPECT_EQ(Counter(w, "superseded_bytes"), 2 * 43000u);
  EXPECT_EQ(w.Plan(peer, Tail(w, blocks[1]), 1).hit_blocks, 1u);
  w.Release(peer, 1);
  supersede(blocks[1], 5);
  EXPECT_EQ(Counter(w, "superseded_bytes"), 43000u);
  // Fill the RAM with parts of the tails' sizes: the superseded one is the only one that goes at first.
  uint64_t evicted = 0;
  while (w.shard->counters().evicted_parts == evicted) {
    ChainRequest fill = w.Chain(w.Blocks(1), 20000);
    ASSERT_THAT(w.Store(peer, fill), Each(PartResult::kOk));
  }
  EXPECT_EQ(w.Lookup(peer, Tail(w, blocks[0])).hit_blocks, 0u);
  EXPECT_EQ(w.Lookup(peer, Tail(w, blocks[1])).hit_blocks, 1u);
  EXPECT_EQ(w.Lookup(peer, Tail(w, blocks[2])).hit_blocks, 1u);
  EXPECT_EQ(Counter(w, "superseded_bytes"), 0u);
  EXPECT_EQ(w.Lookup(peer, Tail(w, blocks[0]), kFlagDetail).detail.why, MissReason::kEvicted);
}

TEST(NodeShardTails, WhatNobodyCanReachIsCountedAndGoesFirst) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(4);
  const ChainRequest chain = w.Chain(blocks, kPart);
  EXPECT_THAT(w.Store(peer, chain), Each(PartResult::kOk));
  EXPECT_EQ(w.Plan(peer, chain, 1).hit_blocks, 4u);
  NoteRequest note;
  note.stranded = {{.plan_id = 1, .first_part = 2}, {.plan_id = 77, .first_part = 0}};
  w.Ask(peer, FrameType::kNote, note);
  w.Release(peer, 1);
  EXPECT_EQ(Counter(w, "stranded_bytes"), 2u * kPart);
  const auto others = w.Blocks(62);
  EXPECT_THAT(w.Store(peer, w.Chain(others, kPart)), Each(PartResult::kOk));
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 2u);
  EXPECT_EQ(w.Lookup(peer, w.Chain(others, kPart)).hit_blocks, 62u);
  EXPECT_EQ(Counter(w, "stranded_bytes"), 0u);
}

TEST(NodeShardTails, StrandedBlocksThatAreUsedAgainAreNotStranded) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(2), kPart);
  w.Store(peer, chain);
  w.Plan(peer, chain, 1);
  NoteRequest note;
  note.stranded = {{.plan_id = 1, .first_part = 0}};
  w.Ask(peer, FrameType::kNote, note);
  EXPECT_EQ(Counter(w, "stranded_bytes"), 2u * kPart);
  w.Plan(peer, chain, 2);
  EXPECT_EQ(Counter(w, "stranded_bytes"), 0u);
}

TEST(NodeShardTails, AMissSaysWhy) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(1), kPart);
  EXPECT_EQ(w.Lookup(peer, chain, kFlagDetail).detail.why, MissReason::kNeverSeen);
  EXPECT_FALSE(w.Lookup(peer, chain).detail.present) << "an older client is told what it always was";
  w.Store(peer, chain);
  EXPECT_EQ(w.Lookup(peer, chain, kFlagDetail).detail.why, MissReason::kNone);
  w.Store(peer, w.Chain(w.Blocks(64), kPart));
  EXPECT_EQ(w.Lookup(peer, chain, kFlagDetail).detail.why, MissReason::kEvicted);
}

}  // namespace
}  // namespace cistern
