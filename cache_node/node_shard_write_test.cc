// OFFER, PUT, ABORT and DROP of a shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

using ::testing::Each;

constexpr uint64_t kMiB = 1u << 20;
constexpr uint32_t kPart = 65536;  // 64 in 4 MiB.

// An offer of `blocks` and the PUT that would follow.
struct Offered {
  Offered(ShardWorld& w, PeerId peer, const ChainRequest& chain) : offer(w.Offer(peer, chain)) {
    put = w.PutFor(chain, offer, bytes, which);
  }
  OfferReply offer;
  PutRequest put;
  std::vector<std::byte> bytes;
  std::vector<size_t> which;
};

PutReply Put(ShardWorld& w, PeerId peer, const Offered& offered) {
  w.Ask(peer, FrameType::kPut, offered.put, 0, offered.bytes);
  return w.Take<PutReply>(FrameType::kPutReply);
}

TEST(NodeShard, APartIsVisibleOnlyAfterItsBytesWereChecked) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(2), kPart);
  Offered offered(w, peer, chain);
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 0u);
  EXPECT_EQ(w.shard->ram().writing_parts(), 2u);
  offered.bytes[kPart + 5] ^= std::byte{1};  // Of the second part, on the way.
  EXPECT_EQ(Put(w, peer, offered).results, (std::vector{PartResult::kOk, PartResult::kCorrupt}));
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 1u);
  EXPECT_EQ(w.shard->counters().corrupt_puts, 1u);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_EQ(w.shard->puts().size(), 0u);
  EXPECT_THAT(w.Store(peer, chain), testing::ElementsAre(PartResult::kExists, PartResult::kOk));
}

TEST(NodeShard, APutIdIsForOneUseAndOnePeer) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const PeerId thief = w.Connect();
  Offered offered(w, peer, w.Chain(w.Blocks(1), kPart));
  EXPECT_THAT(Put(w, thief, offered).results, Each(PartResult::kStale));
  EXPECT_THAT(Put(w, peer, offered).results, Each(PartResult::kOk));
  EXPECT_THAT(Put(w, peer, offered).results, Each(PartResult::kStale));
  EXPECT_EQ(w.shard->ram().parts(), 1u);
}

TEST(NodeShard, APutOfAnotherLengthIsRefusedAndItsSlotFreed) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  Offered offered(w, peer, w.Chain(w.Blocks(1), kPart));
  offered.put.parts[0].length = 1000;
  offered.bytes.resize(1000);
  EXPECT_THAT(Put(w, peer, offered).results, Each(PartResult::kStale)) << "refused when its payload began";
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_EQ(w.shard->puts().size(), 0u);
}

TEST(NodeShard, TheSameIdTwiceInOnePutFillsItsSlotOnce) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(1), kPart);
  Offered offered(w, peer, chain);
  offered.put.parts.push_back(offered.put.parts[0]);
  offered.bytes.resize(2 * kPart);  // The second copy is zeros.
  EXPECT_EQ(Put(w, peer, offered).results, (std::vector{PartResult::kOk, PartResult::kInvalid}));
  EXPECT_TRUE(w.Verify(w.Plan(peer, chain, 1).parts[0], chain.blocks[0]));
}

TEST(NodeShard, PayloadThatDoesNotAddUpIsRefusedWhole) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  Offered offered(w, peer, w.Chain(w.Blocks(2), kPart));
  offered.bytes.resize(kPart);
  w.Ask(peer, FrameType::kPut, offered.put, 0, offered.bytes);
  EXPECT_TRUE(w.HasReply(FrameType::kError));
  EXPECT_EQ(w.shard->ram().parts(), 0u);
  // Payload with any other frame, and a PUT that announces bytes and brings none.
  w.Ask(peer, FrameType::kLookup, w.Chain(w.Blocks(1), kPart), 0, offered.bytes);
  EXPECT_TRUE(w.HasReply(FrameType::kError));
  w.Ask(peer, FrameType::kPut, offered.put);
  EXPECT_THAT(w.Take<PutReply>(FrameType::kPutReply).results, Each(PartResult::kInvalid));
}

TEST(NodeShard, F19_ADeadWritersSlotsAreFreeAtOnce) {
  ShardWorld w(4 * kMiB);
  const PeerId first = w.Connect();
  const PeerId second = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(64), kPart);
  Offered offered(w, first, chain);  // The whole arena.
  // Half the bytes have arrived when it dies.
  w.transport.BeginFrame(first, FrameType::kPut, 99, offered.put, 0, offered.bytes.size());
  w.transport.Kill(first);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_EQ(w.Lookup(second, chain).hit_blocks, 0u);
  EXPECT_THAT(w.Store(second, chain), Each(PartResult::kOk));
  EXPECT_EQ(w.shard->counters().puts_abandoned, 64u);
}

TEST(NodeShard, F19_AnOfferWithoutPutEndsAtItsDeadlineAndALatePutIsRefused) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  ChainRequest chain = w.Chain(w.Blocks(64), kPart);
  chain.deadline_ms = 1000;
  Offered offered(w, peer, chain);
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 0u);
  w.clock.Advance(kSecond + kPutGrace);
  w.shard->Poll();
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_EQ(w.shard->counters().puts_expired, 64u);
  const PeerId other = w.Connect();
  EXPECT_THAT(w.Store(other, chain), Each(PartResult::kOk));
  EXPECT_THAT(Put(w, peer, offered).results, Each(PartResult::kStale));
}

TEST(NodeShard, F19_AbortFreesTheSlotsAtOnce) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  Offered offered(w, peer, w.Chain(w.Blocks(3), kPart));
  IdList ids;
  for (const auto& part : offered.put.parts) ids.ids.push_back(part.put_id);
  ids.ids.push_back(12345);
  w.Ask(peer, FrameType::kAbort, ids);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_THAT(Put(w, peer, offered).results, Each(PartResult::kStale));
}

TEST(NodeShard, F19_ADeadlineWhileBytesArriveCancelsThemFirst) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(2), kPart);
  Offered offered(w, peer, chain);
  w.transport.BeginFrame(peer, FrameType::kPut, 99, offered.put, 0, offered.bytes.size());
  w.clock.Advance(3 * kSecond);
  w.shard->Poll();
  EXPECT_GE(w.transport.cancels, 1u);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_TRUE(w.transport.IsUp(peer));
  w.transport.EndFrame(peer, offered.bytes);
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 0u);
}

TEST(NodeShard, F19_ADeadlineEndsAllPutsOfItsFrame) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  ChainRequest soon = w.Chain(w.Blocks(1), kPart), late = w.Chain(w.Blocks(1), kPart);
  soon.deadline_ms = 1000;
  late.deadline_ms = 20'000;
  Offered first(w, peer, soon), second(w, peer, late);
  PutRequest both = first.put;
  both.parts.push_back(second.put.parts[0]);
  w.transport.BeginFrame(peer, FrameType::kPut, 99, both, 0, first.bytes.size() + second.bytes.size());
  w.clock.Advance(2 * kSecond);
  w.shard->Poll();
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  // A frame of the same name brings bytes that went nowhere: they make nothing visible.
  w.transport.BeginFrame(peer, FrameType::kPut, 99, second.put, 0, second.bytes.size());
  w.transport.EndFrame(peer, second.bytes);
  EXPECT_EQ(w.Lookup(peer, late).hit_blocks, 0u);
}

TEST(NodeShard, F19_WhereBytesCannotBeCancelledThePeerIsFencedBeforeTheSlotIsFree) {
  ShardWorld w(4 * kMiB);
  w.transport.can_cancel = false;
  const PeerId peer = w.Connect();
  Offered offered(w, peer, w.Chain(w.Blocks(2), kPart));
  w.transport.BeginFrame(peer, FrameType::kPut, 99, offered.put, 0, offered.bytes.size());
  w.clock.Advance(3 * kSecond);
  w.shard->Poll();
  EXPECT_FALSE(w.transport.IsUp(peer));
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
}

TEST(NodeShard, F20_WritersOfTheSameKeysGetOkOrExistsAndOneCopyStays) {
  ShardWorld w(4 * kMiB);
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  std::vector<PeerId> peers;
  std::vector<Offered> offers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(w.Connect());
    offers.emplace_back(w, peers.back(), chain);
    EXPECT_EQ(offers.back().which.size(), 4u) << "nothing is visible yet, so each may try";
  }
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_THAT(Put(w, peers[i], offers[i]).results, Each(i == 0 ? PartResult::kOk : PartResult::kExists));
    const PlanReply plan = w.Plan(peers[i], chain, 1);
    ASSERT_EQ(plan.hit_blocks, 4u);
    for (size_t b = 0; b < 4; ++b) EXPECT_TRUE(w.Verify(plan.parts[b], chain.blocks[b]));
  }
  EXPECT_EQ(w.shard->ram().parts(), 4u);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  EXPECT_THAT(w.Store(peers[3], chain), Each(PartResult::kExists));
}

TEST(NodeShard, AnOfferLargerThanTheArenaTakesItsFirstBlocks) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(100), kPart);
  const auto results = w.Store(peer, chain);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], i < 64 ? PartResult::kOk : PartResult::kNoSpace) << i;
  }
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 64u);
}

TEST(NodeShard, F36_PartsAboveTheBoundAreTooLargeUpFront) {
  ShardWorld w(16 * kMiB);
  const PeerId peer = w.Connect();
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(2), kPartBytesMax + 1)), Each(PartResult::kTooLarge));
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(2), UINT32_MAX)), Each(PartResult::kTooLarge));
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(2), 0)), Each(PartResult::kInvalid));
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(2), kPartBytesMax)), Each(PartResult::kOk));
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
}

TEST(NodeShard, PullsFromTheWritersWindow) {
  ShardWorld w(8 * kMiB);
  auto window = MemoryRegion::Create("window", 1 * kMiB, false);
  ASSERT_TRUE(window.ok());
  const PeerId peer = w.Connect(kAllRights, /*one_sided=*/true, &*window);
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  Offered offered(w, peer, chain);
  std::memcpy(window->data(), offered.bytes.data(), offered.bytes.size());
  offered.put.parts[2].crc ^= 1;
  offered.put.parts[3].window_offset = 1 * kMiB - 5;
  w.Ask(peer, FrameType::kPut, offered.put, kFlagFromWindow);
  EXPECT_EQ(w.transport.longest_pull_bytes, 0u) << "copied before what came with it is answered";
  for (int i = 0; i < 100 && !w.HasReply(FrameType::kPutReply); ++i) w.shard->Poll();
  EXPECT_EQ(w.Take<PutReply>(FrameType::kPutReply).results,
            (std::vector{PartResult::kOk, PartResult::kOk, PartResult::kCorrupt, PartResult::kInvalid}));
  EXPECT_EQ(w.Lookup(peer, chain).hit_blocks, 2u);
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  const PeerId plain = w.Connect();
  w.Ask(plain, FrameType::kPut, offered.put, kFlagFromWindow);
  EXPECT_TRUE(w.HasReply(FrameType::kError));
}

TEST(NodeShard, LongPullsLeaveTurnsToOthers) {
  ShardWorld w(64 * kMiB);
  auto window = MemoryRegion::Create("window", 32 * kMiB, false);
  ASSERT_TRUE(window.ok());
  const PeerId peer = w.Connect(kAllRights, true, &*window);
  const ChainRequest chain = w.Chain(w.Blocks(8), 4u << 20);
  Offered offered(w, peer, chain);
  std::memcpy(window->data(), offered.bytes.data(), offered.bytes.size());
  w.Ask(peer, FrameType::kPut, offered.put, kFlagFromWindow);
  const uint64_t put_request = w.last_request;
  EXPECT_FALSE(w.HasReply(FrameType::kPutReply));
  const PeerId other = w.Connect();
  EXPECT_EQ(w.Lookup(other, chain).hit_blocks, 0u) << "served in between, and nothing half is visible";
  EXPECT_EQ(w.shard->NextWake(), 0);
  // A part is more than a turn's share: it comes in pieces, whose checksum is checked as one.
  const uint64_t turns = (uint64_t{32} << 20) / kPullBytesPerTurn;
  for (uint64_t i = 0; i + 1 < turns; ++i) w.shard->Poll();
  EXPECT_EQ(w.transport.longest_pull_bytes, kPullBytesPerTurn);
  w.last_request = put_request;
  EXPECT_THAT(w.Take<PutReply>(FrameType::kPutReply).results, Each(PartResult::kOk));
}

TEST(NodeShard, PullsUnderWayEndWithTheirPeer) {
  ShardWorld w(8 * kMiB);
  auto window = MemoryRegion::Create("window", 1 * kMiB, false);
  ASSERT_TRUE(window.ok());
  w.transport.pulls_wait = true;
  const PeerId peer = w.Connect(kAllRights, true, &*window);
  Offered offered(w, peer, w.Chain(w.Blocks(3), kPart));
  w.Ask(peer, FrameType::kPut, offered.put, kFlagFromWindow);
  ASSERT_LE(kPart, kPullBytesPerTurn) << "what is cut is asked for piece by piece";
  for (int i = 0; i < 3; ++i) w.shard->Poll();
  EXPECT_EQ(w.transport.waiting_pulls(), 3u);
  w.clock.Advance(3 * kSecond);
  w.shard->Poll();  // Past the deadline with bytes under way: only the fence makes the slots free.
  EXPECT_FALSE(w.transport.IsUp(peer));
  EXPECT_EQ(w.shard->ram().writing_parts(), 0u);
  w.transport.FlushPulls();
  EXPECT_EQ(w.shard->ram().parts(), 0u);
  // The frame's place is used again.
  const PeerId again = w.Connect(kAllRights, true, &*window);
  Offered next(w, again, w.Chain(w.Blocks(3), kPart));
  std::memcpy(window->data(), next.bytes.data(), next.bytes.size());
  w.Ask(again, FrameType::kPut, next.put, kFlagFromWindow);
  for (int i = 0; i < 3; ++i) w.shard->Poll();
  w.transport.FlushPulls();
  EXPECT_THAT(w.Take<PutReply>(FrameType::kPutReply).results, Each(PartResult::kOk));
}

TEST(NodeShard, DropsSingleBlocksWithAllTheirParts) {
  ShardWorld w(8 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(4);
  w.Store(peer, w.Chain(blocks, 1000, {{.slice = 0}, {.slice = 1}}));
  w.Ask(peer, FrameType::kDrop, DropRequest{.all = false, .blocks = {blocks[1].hash, blocks[3].hash}});
  EXPECT_EQ(w.Take<DropReply>(FrameType::kDropReply).dropped_parts, 4u);
  EXPECT_EQ(w.Lookup(peer, w.Chain(blocks, 1000)).hit_blocks, 1u);
  EXPECT_EQ(w.shard->ram().parts(), 4u);
}

// However many coordinates a writer makes up.
TEST(NodeShard, DropsBlocksOfMoreCoordinatesThanOneTurnAsksFor) {
  ShardWorld w(32 * kMiB);
  const PeerId peer = w.Connect();
  for (uint16_t slice = 0; slice < 1100; ++slice) {
    const auto blocks = w.Blocks(1);
    w.Store(peer, w.Chain(blocks, kPartBytesMin, {{.slice = slice}}));
    if (slice % 100 != 99) continue;
    w.Ask(peer, FrameType::kDrop, DropRequest{.all = false, .blocks = {blocks[0].hash}});
    while (!w.HasReply(FrameType::kDropReply)) w.shard->Poll();
    EXPECT_EQ(w.Take<DropReply>(FrameType::kDropReply).dropped_parts, 1u) << slice;
  }
}

TEST(NodeShard, F14_NothingLeaksOverMixedTrafficAtTwiceThePool) {
  ShardWorld w(8 * kMiB);
  std::vector<PeerId> peers;
  for (int i = 0; i < 4; ++i) peers.push_back(w.Connect());
  std::vector<ChainRequest> chains;
  for (int i = 0; i < 32; ++i) chains.push_back(w.Chain(w.Blocks(8), kPart));
  uint64_t plan_id = 0;
  for (int step = 0; step < 5000; ++step) {
    PeerId& peer = peers[w.random.Below(peers.size())];
    const ChainRequest& chain = chains[w.random.Below(chains.size())];
    switch (w.random.Below(8)) {
      case 0:
      case 1:
        w.Store(peer, chain);
        break;
      case 2:
      case 3:
        w.Plan(peer, chain, ++plan_id, 200, w.random.Chance(0.5) ? kFlagInline : 0);
        break;
      case 4:
        w.Release(peer, plan_id);
        break;
      case 5:
        w.Offer(peer, chain);
        break;
      case 6:
        w.clock.Advance(50 * kMillisecond);
        w.shard->Poll();
        break;
      default:
        if (w.random.Chance(0.1)) w.DropAll(peer);
        if (w.random.Chance(0.1)) {
          w.transport.Kill(peer);
          peer = w.Connect();
        }
    }
    if (step % 100 == 0) w.transport.sent.clear();
  }
  w.clock.Advance(60 * kSecond);
  w.shard->Poll();
  EXPECT_EQ(w.shard->leases().plans() + w.shard->leases().holds() + w.shard->puts().size(), 0u);
  EXPECT_EQ(w.shard->ram().leased_parts() + w.shard->ram().doomed_parts() + w.shard->ram().writing_parts(),
            0u);
  w.DropAll(peers[0]);
  EXPECT_EQ(w.shard->ram().used_bytes(), 0u);
  EXPECT_EQ(w.shard->ram().pool().free_slabs(), 2u);
}

}  // namespace
}  // namespace cistern
