// Leases of a shard: who keeps which bytes until when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

using ::testing::Each;

constexpr uint64_t kMiB = 1u << 20;
constexpr uint32_t kPart = 65536;  // 64 in 4 MiB.

TEST(NodeShard, F13_PlansThatNobodyReadsEndByThemselves) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(64);
  w.Store(peer, w.Chain(blocks, kPart));
  for (uint64_t i = 0; i < 1000; ++i) w.Plan(peer, w.Chain({blocks[i % 64]}, kPart), i + 1, 2000);
  EXPECT_EQ(w.shard->ram().pinned_bytes(), 4 * kMiB);
  EXPECT_LE(w.shard->NextWake(), w.clock.Now() + 3 * kSecond);
  w.clock.Advance(3 * kSecond);  // ttl + 1 s
  w.shard->Poll();
  EXPECT_EQ(w.shard->ram().pinned_bytes(), 0u);
  EXPECT_EQ(w.shard->leases().plans(), 0u);
  EXPECT_EQ(w.shard->counters().leases_expired, 1000u);
  EXPECT_EQ(w.shard->NextWake() > w.clock.Now() + 60 * kSecond, true)
      << "nothing is due any more but the ticket";
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(64), kPart)), Each(PartResult::kOk))
      << "a put of the whole pool";
}

TEST(NodeShard, F13_AbortedRequestsReleaseAtOnce) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(8), kPart);
  w.Store(peer, chain);
  w.Plan(peer, chain, 1);
  w.Release(peer, 1);
  EXPECT_EQ(w.shard->ram().pinned_bytes(), 0u);
  w.Plan(peer, chain, 2);
  w.transport.Kill(peer);
  EXPECT_EQ(w.shard->ram().pinned_bytes(), 0u);
  EXPECT_EQ(w.shard->leases().plans(), 0u);
}

TEST(NodeShard, F15_DroppingEverythingLeavesAReadersBytesAlone) {
  ShardWorld w(4 * kMiB);
  const PeerId reader = w.Connect();
  const PeerId other = w.Connect();
  const auto blocks = w.Blocks(64);
  w.Store(other, w.Chain(blocks, kPart));
  const PlanReply plan = w.Plan(reader, w.Chain({blocks.begin(), blocks.begin() + 4}, kPart), 1, 30'000);
  const DropReply dropped = w.DropAll(other);
  EXPECT_EQ(dropped.dropped_parts, 60u);
  EXPECT_EQ(dropped.kept_parts, 4u);
  EXPECT_EQ(w.Lookup(other, w.Chain(blocks, kPart)).hit_blocks, 0u) << "out of the index at once";
  // The whole pool is written over, as far as it may be.
  for (int i = 0; i < 4; ++i) w.Store(other, w.Chain(w.Blocks(60), kPart));
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(w.Verify(plan.parts[i], blocks[i])) << i;
  EXPECT_EQ(w.Read(reader, 1, {2}).parts[0].result, PartResult::kOk);
  EXPECT_EQ(w.shard->ram().doomed_parts(), 4u);
  w.Release(reader, 1);
  EXPECT_EQ(w.shard->ram().doomed_parts(), 0u);
  EXPECT_THAT(w.Store(other, w.Chain(w.Blocks(64), kPart)), Each(PartResult::kOk));
  EXPECT_FALSE(w.Verify(plan.parts[0], blocks[0])) << "reused only now, and told by the generation";
}

TEST(NodeShard, F15_EvictionGoesRoundLeasedParts) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(64);
  w.Store(peer, w.Chain(blocks, kPart));
  const PlanReply plan = w.Plan(peer, w.Chain({blocks[63]}, kPart), 1, 30'000);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(40), kPart)), Each(PartResult::kOk));
    w.clock.Advance(kSecond / 2);
    w.Store(peer, w.Chain(w.Blocks(1), 4u << 20));  // A whole slab: there is none to be had.
    ASSERT_TRUE(w.Verify(plan.parts[0], blocks[63]));
    ASSERT_EQ(w.Lookup(peer, w.Chain({blocks[63]}, kPart)).hit_blocks, 1u) << "not even out of the index";
  }
}

TEST(NodeShard, F16_AFullyPinnedPoolRefusesAtOnceAndRecovers) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(64);
  w.Store(peer, w.Chain(blocks, kPart));
  w.Plan(peer, w.Chain(blocks, kPart), 1, 30'000);
  EXPECT_EQ(w.shard->Stats().counters.at("pinned_ratio_ppm"), 1'000'000u);
  const auto more = w.Blocks(500);
  EXPECT_THAT(w.Store(peer, w.Chain(more, kPart)), Each(PartResult::kNoSpace));
  EXPECT_EQ(w.shard->counters().no_space, 1u) << "one look for the whole offer, no spinning";
  w.Release(peer, 1);
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(64), kPart)), Each(PartResult::kOk));
  EXPECT_EQ(w.shard->Stats().counters.at("pinned_ratio_ppm"), 0u);
}

TEST(NodeShard, F17_AReaderPastItsLeaseCanTellAndIsTold) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  for (int round = 0; round < 100; ++round) {
    const auto blocks = w.Blocks(8);
    const ChainRequest chain = w.Chain(blocks, kPart);
    w.Store(peer, chain);
    const uint64_t id = static_cast<uint64_t>(round) + 1;
    const PlanReply plan = w.Plan(peer, chain, id, /*ttl_ms=*/100);
    w.clock.Advance(500 * kMillisecond);
    if (round % 2 == 0) w.shard->Poll();
    w.Store(peer, w.Chain(w.Blocks(64), kPart));
    w.shard->Poll();
    w.Store(peer, w.Chain(w.Blocks(64), kPart));  // Everything is written over.
    for (size_t i = 0; i < blocks.size(); ++i) EXPECT_FALSE(w.Verify(plan.parts[i], blocks[i]));
    EXPECT_EQ(w.Read(peer, id, {0}).parts[0].result, PartResult::kLeaseExpired);
    EXPECT_TRUE(w.payload.empty());
    EXPECT_EQ(w.Renew(peer, id, 1000).result, PartResult::kLeaseExpired);
  }
}

TEST(NodeShard, F17_ReadAndRenewAreRefusedPastTheEndEvenBeforeTheTimerRan) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(1), kPart);
  w.Store(peer, chain);
  w.Plan(peer, chain, 1, 100);
  w.clock.Advance(100 * kMillisecond + kLeaseGrace);
  EXPECT_EQ(w.Read(peer, 1, {0}).parts[0].result, PartResult::kLeaseExpired);
  w.Plan(peer, chain, 2, 100);
  w.clock.Advance(100 * kMillisecond + kLeaseGrace);
  w.Ask(peer, FrameType::kRenew, RenewRequest{.plan_id = 2, .ttl_ms = 100});
  EXPECT_EQ(w.Take<RenewReply>(FrameType::kRenewReply).result, PartResult::kLeaseExpired);
}

TEST(NodeShard, RenewalKeepsALeaseAndTtlIsCut) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(1), kPart);
  w.Store(peer, chain);
  EXPECT_EQ(w.Plan(peer, chain, 1, 3'600'000).ttl_ms, 30'000u);
  EXPECT_EQ(w.Plan(peer, chain, 2, 0).ttl_ms, kLeaseTtlDefaultMs);
  for (int i = 0; i < 5; ++i) {
    w.clock.Advance(2 * kSecond);
    w.shard->Poll();
    EXPECT_EQ(w.Renew(peer, 2, 2000).result, PartResult::kOk);
  }
  EXPECT_EQ(w.Renew(peer, 99, 2000).result, PartResult::kLeaseExpired);
}

TEST(NodeShard, F18_ProbesNeitherLeaseNorKeepAlive) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto old = w.Blocks(32);
  const auto young = w.Blocks(32);
  w.Store(peer, w.Chain(old, kPart));
  w.Store(peer, w.Chain(young, kPart));
  for (int i = 0; i < 1000; ++i) w.Lookup(peer, w.Chain(old, kPart), i % 2 == 0 ? kFlagProbe : 0);
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  EXPECT_EQ(w.shard->leases().plans(), 0u);
  EXPECT_THAT(w.Store(peer, w.Chain(w.Blocks(32), kPart)), Each(PartResult::kOk));
  EXPECT_EQ(w.Lookup(peer, w.Chain(old, kPart)).hit_blocks, 0u)
      << "the oldest went although it was looked up";
  EXPECT_EQ(w.Lookup(peer, w.Chain(young, kPart)).hit_blocks, 32u);
}

TEST(NodeShard, ParentsOutliveTheirChildren) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const auto blocks = w.Blocks(64);
  // A plan over the first half, then the second half is stored, then the plan is released.
  const ChainRequest head = w.Chain({blocks.begin(), blocks.begin() + 32}, kPart);
  w.Store(peer, head);
  w.Plan(peer, head, 1);
  w.Store(peer, w.Chain({blocks.begin() + 32, blocks.end()}, kPart));
  w.Release(peer, 1);
  for (uint32_t gone = 1; gone <= 64; ++gone) {
    w.Store(peer, w.Chain(w.Blocks(1), kPart));
    ASSERT_EQ(w.Lookup(peer, w.Chain(blocks, kPart)).hit_blocks, 64 - gone) << "always the deepest first";
  }
}

TEST(NodeShard, F30_APayloadUnderWayKeepsItsBytesUntilItIsSent) {
  ShardWorld w(4 * kMiB);
  const PeerId reader = w.Connect();
  const PeerId writer = w.Connect();
  const auto blocks = w.Blocks(4);
  w.Store(writer, w.Chain(blocks, kPart));
  w.transport.hold_sends = true;
  const PlanReply plan = w.Plan(reader, w.Chain(blocks, kPart), 0, 0, kFlagInline | kFlagOneShot);
  const uint64_t plan_request = w.last_request;
  EXPECT_EQ(w.shard->ram().leased_parts(), 4u);
  w.DropAll(writer);
  for (int i = 0; i < 4; ++i) w.Store(writer, w.Chain(w.Blocks(60), kPart));
  w.transport.FlushSends();
  for (const auto& sent : w.transport.sent) {
    if (sent.request_id != plan_request) continue;
    ASSERT_EQ(sent.payload.size(), 4 * kPart);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(Crc32c(sent.payload.data() + i * kPart, kPart), plan.parts[i].crc);
  }
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  EXPECT_EQ(w.shard->ram().doomed_parts(), 0u);
}

TEST(NodeShard, F30_APeerThatNeverTakesItsPayloadIsCutOff) {
  ShardWorld w(4 * kMiB);
  const PeerId reader = w.Connect();
  const auto blocks = w.Blocks(4);
  w.Store(reader, w.Chain(blocks, kPart));
  w.transport.hold_sends = true;
  w.Plan(reader, w.Chain(blocks, kPart), 0, 0, kFlagInline | kFlagOneShot);
  w.clock.Advance(kPayloadHoldMax - 1);
  w.shard->Poll();
  EXPECT_TRUE(w.transport.IsUp(reader));
  EXPECT_EQ(w.shard->ram().leased_parts(), 4u);
  w.clock.Advance(1);
  w.shard->Poll();
  EXPECT_FALSE(w.transport.IsUp(reader));
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  EXPECT_EQ(w.shard->leases().holds(), 0u);
}

TEST(NodeShard, APeerWhoseSendQueueIsFullIsCutOffInsteadOfLeftWaiting) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  w.Store(peer, chain);
  w.transport.send_queue_full = true;
  w.Ask(peer, FrameType::kPlan, chain, kFlagInline | kFlagOneShot);
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  EXPECT_EQ(w.shard->NextWake(), 0);
  w.shard->Poll();
  EXPECT_FALSE(w.transport.IsUp(peer));
}

TEST(NodeShard, F46_WallClockJumpsMoveNoLease) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  w.Store(peer, chain);
  w.Plan(peer, chain, 1, 2000);
  for (const int64_t jump : {3600, -7200, 1'000'000}) {
    w.unix_now += jump;
    w.clock.Advance(500 * kMillisecond);
    w.shard->Poll();
    EXPECT_EQ(w.Read(peer, 1, {0}).parts[0].result, PartResult::kOk);
    EXPECT_TRUE(w.transport.IsUp(peer));
  }
  w.clock.Advance(800 * kMillisecond);
  w.shard->Poll();
  EXPECT_EQ(w.Read(peer, 1, {0}).parts[0].result, PartResult::kLeaseExpired);
}

TEST(NodeShard, F24_ANewIncarnationEndsEveryPeerAndItsLeases) {
  ShardWorld w(4 * kMiB);
  const PeerId peer = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  w.Store(peer, chain);
  w.Plan(peer, chain, 1);
  w.shard->SetIdentity(w.cluster, 7);
  EXPECT_TRUE(w.transport.IsUp(peer)) << "the same identity changes nothing";
  w.shard->SetIdentity(w.cluster, 8);
  EXPECT_FALSE(w.transport.IsUp(peer));
  EXPECT_EQ(w.shard->leases().plans(), 0u);
  const PeerId again = w.Connect();
  EXPECT_EQ(w.transport.ack(again).incarnation, 8u);
  EXPECT_EQ(w.Lookup(again, chain).incarnation, 8u);
  EXPECT_EQ(w.Lookup(again, chain).hit_blocks, 4u) << "verified data stays";
  EXPECT_EQ(w.Read(again, 1, {0}).parts[0].result, PartResult::kLeaseExpired)
      << "a plan of before is nobody's";
}

TEST(NodeShard, TheEndOfATicketEndsThePeerAndItsLeases) {
  ShardWorld w(4 * kMiB);
  auto accepted = w.transport.Accept(w.MakeHello(kAllRights, /*life_s=*/10));
  ASSERT_TRUE(accepted.ok());
  const PeerId lasting = w.Connect();
  const ChainRequest chain = w.Chain(w.Blocks(4), kPart);
  w.Store(lasting, chain);
  w.clock.Advance((10 + kTicketSkewSeconds) * kSecond - kSecond);
  w.shard->Poll();
  w.Plan(*accepted, chain, 1, 30'000);
  EXPECT_EQ(w.shard->ram().leased_parts(), 4u);
  w.clock.Advance(kSecond);
  w.shard->Poll();
  EXPECT_FALSE(w.transport.IsUp(*accepted));
  EXPECT_TRUE(w.transport.IsUp(lasting));
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
  EXPECT_EQ(w.shard->counters().tickets_expired, 1u);
}

TEST(NodeShard, HelloIsRefusedByNameForEachReason) {
  ShardWorld w(4 * kMiB);
  const auto refused = [&](const Hello& hello) { return w.transport.Accept(hello).status(); };
  Hello hello = w.MakeHello();
  hello.key_algorithm = "md5";
  EXPECT_TRUE(absl::IsFailedPrecondition(refused(hello)));
  EXPECT_THAT(std::string(refused(hello).message()), testing::HasSubstr("md5"));
  hello = w.MakeHello();
  hello.version_min = hello.version_max = 99;
  EXPECT_THAT(std::string(refused(hello).message()), testing::HasSubstr("99"));
  EXPECT_EQ(w.shard->counters().version_refused, 1u);
  EXPECT_EQ(w.shard->counters().algorithm_refused, 2u);
  hello = w.MakeHello();
  hello.cluster.bytes[0] ^= 1;
  EXPECT_TRUE(absl::IsPermissionDenied(refused(hello)));
  hello = w.MakeHello();
  hello.ticket[hello.ticket.size() - 1] ^= 1;
  EXPECT_TRUE(absl::IsPermissionDenied(refused(hello)));
  hello = w.MakeHello(kAllRights, -kTicketSkewSeconds - 1);
  EXPECT_TRUE(absl::IsPermissionDenied(refused(hello)));
  EXPECT_EQ(w.shard->peers(), 0u);
  EXPECT_EQ(w.shard->counters().peers_refused, 6u);
}

}  // namespace
}  // namespace cistern
