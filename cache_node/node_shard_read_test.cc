#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache_node/shard_test_util.h"
#include "core/placement.h"

namespace cistern {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1u << 20;

TEST(NodeShard, FindsPlansAndServesWhatWasStored) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(10);
  const ChainRequest chain = w.Chain(blocks, 1000);
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 0u);
  EXPECT_THAT(w.Store(peer, chain), Each(PartResult::kOk));
  const LookupReply lookup = w.Lookup(peer, chain);
  EXPECT_EQ(lookup.hit_blocks, 10u);
  EXPECT_EQ(lookup.stopped_by, PartResult::kOk);
  EXPECT_EQ(lookup.incarnation, 7u);
  const PlanReply plan = w.Plan(peer, chain, 1);
  ASSERT_EQ(plan.parts.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(w.Verify(plan.parts[i], blocks[i])) << i;
  const PlanReply read = w.Read(peer, 1, {9, 0});
  ASSERT_EQ(read.parts.size(), 2u);
  ASSERT_EQ(w.payload.size(), 2000u);
  const auto first = ShardWorld::PartBytes(blocks[9], {}, 1000);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), w.payload.begin()));
  EXPECT_EQ(read.parts[1].block, blocks[0]);
}

TEST(NodeShard, InlinePlanCarriesTheBytesAndOneShotLeavesNoLease) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(4);
  const ChainRequest chain = w.Chain(blocks, 4096);
  w.Store(peer, chain);
  const PlanReply reply = w.Plan(peer, chain, 0, 0, kFlagInline | kFlagOneShot);
  ASSERT_EQ(reply.hit_blocks, 4u);
  EXPECT_EQ(w.payload.size(), 4 * 4096u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Crc32c(w.payload.data() + i * 4096, 4096), reply.parts[i].crc);
  EXPECT_EQ(w.shard->leases().plans(), 0u);
  EXPECT_EQ(w.shard->leases().holds(), 0u);
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  w.Plan(peer, chain, 5, 2000, kFlagInline);
  EXPECT_EQ(w.shard->leases().plans(), 1u);
  EXPECT_EQ(w.shard->ram().leased_parts(), 4u);
}

TEST(NodeShard, InlinePlanAboveThePayloadBoundSendsAPrefixAndSaysBusyForTheRest) {
  ShardWorld w(144 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(34);
  const ChainRequest chain = w.Chain(blocks, 4u << 20);
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_THAT(w.Store(peer, w.Chain({blocks[i]}, 4u << 20)), Each(PartResult::kOk));
  }
  const PlanReply reply = w.Plan(peer, chain, 0, 0, kFlagInline | kFlagOneShot);
  ASSERT_EQ(reply.hit_blocks, 34u);
  EXPECT_EQ(w.payload.size(), kPayloadBytesMax);
  for (size_t i = 0; i < 34; ++i)
    EXPECT_EQ(reply.parts[i].result, i < 32 ? PartResult::kOk : PartResult::kBusy);
  EXPECT_EQ(w.shard->counters().plan_parts[static_cast<int>(PartResult::kBusy)], 2u);
}

TEST(NodeShard, F01_AnotherBlockOfTheSameHashIsAMissAndCounted) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(1);
  w.Store(peer, w.Chain(blocks, 1000));
  auto other = blocks;
  other[0].fingerprint ^= 1;
  const LookupReply reply = w.Lookup(peer, w.Chain(other, 1000));
  EXPECT_EQ(reply.hit_blocks, 0u);
  EXPECT_EQ(reply.stopped_by, PartResult::kMiss);
  EXPECT_EQ(w.shard->counters().collisions_rejected, 1u);
  const PlanReply plan = w.Plan(peer, w.Chain(other, 1000), 1, 2000, kFlagInline);
  EXPECT_EQ(plan.hit_blocks, 0u);
  EXPECT_TRUE(w.payload.empty());
  EXPECT_EQ(w.Store(peer, w.Chain(other, 1000)), std::vector{PartResult::kInvalid});
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000)).hit_blocks, 1u) << "the first one stays";
}

TEST(NodeShard, F05_AnotherLayoutOrLengthIsAMissWithItsReason) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(2);
  w.Store(peer, w.Chain(blocks, 1000));
  ChainRequest other = w.Chain(blocks, 1000);
  other.layout = LayoutNamed(9);
  EXPECT_EQ(w.Lookup(peer, other).stopped_by, PartResult::kLayout);
  const PlanReply plan = w.Plan(peer, other, 1, 2000, kFlagInline);
  EXPECT_EQ(plan.hit_blocks, 0u);
  EXPECT_EQ(plan.stopped_by, PartResult::kLayout);
  EXPECT_TRUE(w.payload.empty());
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1001)).stopped_by, PartResult::kLayout);
  EXPECT_THAT(w.Store(peer, other), Each(PartResult::kLayout));
  EXPECT_THAT(w.Store(peer, w.Chain(blocks, 2000)), Each(PartResult::kLayout));
  EXPECT_EQ(w.shard->counters().miss_blocks, 6u);
  EXPECT_GT(w.shard->counters().layout_mismatches, 0u);
}

TEST(NodeShard, F07_ABlockCountsOnlyWithEveryPartThatIsAskedFor) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(3);
  const std::vector<PartCoord> all = {{.slice = 0}, {.slice = 1}, {.slice = 2, .span = 1}};
  w.Store(peer, w.Chain(blocks, 1000, {all[0], all[1]}));
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000, all)).hit_blocks, 0u);
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000, {all[1]})).hit_blocks, 3u);
  w.Store(peer, w.Chain({blocks[0], blocks[1]}, 1000, {all[2]}));
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000, all)).hit_blocks, 2u);
  const PlanReply plan = w.Plan(peer, w.Chain(blocks, 1000, all), 1);
  ASSERT_EQ(plan.parts.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(plan.parts[i].coord, all[i % 3]);
    EXPECT_TRUE(w.Verify(plan.parts[i], blocks[i / 3]));
  }
  w.Release(peer, 1);
  w.shard->ram().Drop(w.shard->ram().Find(blocks[1].hash, all[1]));
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000, all)).hit_blocks, 1u);
}

TEST(NodeShard, StopsAtARunOfAnotherShard) {
  ShardWorld w(8 * kMiB, /*shards=*/2);
  const PeerId peer = w.Connect();
  std::vector<BlockKey> mine, foreign;
  while (mine.empty() || foreign.empty()) {
    const auto block = w.Blocks(1);
    (ShardOf(block[0].hash, 2) == 0 ? mine : foreign) = block;
  }
  ChainRequest chain = w.Chain({mine[0], foreign[0]}, 1000);
  chain.runs = {{.run_key = mine[0].hash, .count = 1}, {.run_key = foreign[0].hash, .count = 1}};
  EXPECT_EQ(w.Store(peer, chain), (std::vector{PartResult::kOk, PartResult::kWrongShard}));
  const LookupReply reply = w.Lookup(peer, chain);
  EXPECT_EQ(reply.hit_blocks, 1u);
  EXPECT_EQ(reply.stopped_by, PartResult::kWrongShard);
}

TEST(NodeShard, F60_HitAndMissBlocksAreExact) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  // Ten prefixes of 8 blocks: three stored whole, one half, the rest not at all.
  std::vector<std::vector<BlockKey>> prefixes;
  for (int i = 0; i < 10; ++i) prefixes.push_back(w.Blocks(8));
  for (int i = 0; i < 3; ++i) w.Store(peer, w.Chain(prefixes[i], 1000));
  w.Store(peer, w.Chain({prefixes[3].begin(), prefixes[3].begin() + 4}, 1000));
  for (size_t i = 0; i < prefixes.size(); ++i) w.Plan(peer, w.Chain(prefixes[i], 1000), i + 1);
  for (const auto& prefix : prefixes) w.Lookup(peer, w.Chain(prefix, 1000), kFlagProbe);
  EXPECT_EQ(w.shard->counters().hit_blocks, 28u);
  EXPECT_EQ(w.shard->counters().miss_blocks, 52u);
  EXPECT_EQ(w.shard->counters().lookup_blocks, 80u);
  EXPECT_EQ(w.shard->counters().probe_blocks, 80u);
  const NodeStats stats = w.shard->Stats();
  EXPECT_EQ(stats.hit_blocks, 28u);
  EXPECT_EQ(stats.miss_blocks, 52u);
  EXPECT_EQ(stats.tiers.at(0).parts, 28u);
  EXPECT_EQ(stats.tiers.at(0).used_bytes, 28'000u);
  EXPECT_EQ(stats.counters.at("put_parts_ok_total"), 28u);
  EXPECT_EQ(stats.counters.at("leases_live"), 4u);
  EXPECT_EQ(stats.counters.at("pinned_bytes"), 28'000u);
}

TEST(NodeShard, StatsAndTheirFrameSayTheSame) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  w.Store(peer, w.Chain(w.Blocks(5), 1000));
  w.transport.DeliverRaw(peer, FrameType::kStats, 77, {});
  ASSERT_FALSE(w.transport.sent.empty());
  EXPECT_EQ(w.transport.sent.back().type, FrameType::kStatsReply);
  EXPECT_GT(w.transport.sent.back().body.size(), 100u);
  const NodeStats stats = w.shard->Stats();
  ASSERT_EQ(stats.peers.size(), 1u);
  EXPECT_EQ(stats.peers[0].transport, "socket");
  EXPECT_EQ(stats.tiers[0].capacity_bytes, 8 * kMiB);
}

TEST(NodeShard, AnswersBrokenBodiesAndForeignFramesWithAnError) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  for (const FrameType type : {FrameType::kLookup, FrameType::kPlan, FrameType::kRead, FrameType::kRenew,
                               FrameType::kOffer, FrameType::kPut, FrameType::kDrop, FrameType::kPlanReply}) {
    w.transport.sent.clear();
    w.transport.DeliverRaw(peer, type, 9, Bytes(3, std::byte{0xff}));
    ASSERT_EQ(w.transport.sent.size(), 1u) << static_cast<int>(type);
    EXPECT_EQ(w.transport.sent[0].type, FrameType::kError);
  }
  w.transport.DeliverRaw(peer, FrameType::kRelease, 0, Bytes(3, std::byte{0xff}));
  w.transport.DeliverRaw(peer, FrameType::kAbort, 0, Bytes(3, std::byte{0xff}));
  EXPECT_EQ(w.shard->counters().bad_frames, 10u);
  EXPECT_TRUE(w.transport.IsUp(peer));
  ChainRequest no_coords = w.Chain(w.Blocks(1), 1000, {});
  w.transport.sent.clear();
  w.Ask(peer, FrameType::kLookup, no_coords);
  EXPECT_TRUE(w.HasReply(FrameType::kError));
}

// Each change of block costs a whole key in the answer. No answer at all would cost the asker its deadline.
TEST(NodeShard, RefusesAReadWhoseAnswerNoFrameHolds) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(2), 64);
  w.Store(peer, chain);
  ASSERT_EQ(w.Plan(peer, chain, 1).parts.size(), 2u);
  const auto alternating = [](size_t count) {
    std::vector<uint32_t> parts(count);
    for (size_t i = 0; i < count; ++i) parts[i] = i % 2;
    return parts;
  };
  w.Ask(peer, FrameType::kRead, ReadRequest{.plan_id = 1, .parts = alternating(kPartsPerRequestMax)});
  ASSERT_TRUE(w.HasReply(FrameType::kError));
  const auto error = w.Take<ErrorBody>(FrameType::kError);
  EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("ask for less at a time"));
  EXPECT_EQ(w.shard->counters().bad_frames, 1u);
  EXPECT_EQ(w.shard->leases().holds(), 0u);
  EXPECT_EQ(w.Read(peer, 1, alternating(64)).parts.size(), 64u);
}

TEST(NodeShard, ChecksRightsPerRequest) {
  ShardWorld w(8 * kMiB);
  const PeerId writer = w.Connect(kRightWrite);
  const PeerId reader = w.Connect(kRightRead);
  const ChainRequest chain = w.Chain(w.Blocks(1), 1000);
  EXPECT_THAT(w.Store(writer, chain), Each(PartResult::kOk));
  EXPECT_TRUE(w.transport.regions(writer).empty()) << "who may not read gets no mapping";
  EXPECT_EQ(w.transport.regions(reader).size(), 1u);
  EXPECT_EQ(w.Lookup(reader, chain).hit_blocks, 1u);
  const auto denied = [&](PeerId peer, FrameType type) {
    w.Ask(peer, type, chain);
    return w.HasReply(FrameType::kError);
  };
  EXPECT_TRUE(denied(writer, FrameType::kLookup));
  EXPECT_TRUE(denied(writer, FrameType::kPlan));
  EXPECT_TRUE(denied(reader, FrameType::kOffer));
  const DropRequest named{.all = false, .blocks = {chain.blocks[0].hash}};
  for (const PeerId peer : {reader, writer}) {
    w.Ask(peer, FrameType::kDrop, DropRequest{.all = true, .blocks = {}});
    EXPECT_TRUE(w.HasReply(FrameType::kError));
  }
  w.Ask(reader, FrameType::kDrop, named);
  EXPECT_TRUE(w.HasReply(FrameType::kError));
  EXPECT_EQ(w.shard->counters().denied_requests, 6u);
  EXPECT_EQ(w.shard->ram().parts(), 1u);
  w.Ask(writer, FrameType::kDrop, named);
  EXPECT_EQ(w.Take<DropReply>(FrameType::kDropReply).dropped_parts, 1u);
}

}  // namespace
}  // namespace cistern
