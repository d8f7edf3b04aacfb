// Times to live, pins and quotas of a shard in RAM, on simulated clocks.
#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

using NodeShardRetention = ShardFixture;

TEST_F(NodeShardRetention, EachClassEndsInItsTime) {
  for (const uint32_t ttl : {300u, 1800u, 3600u, 86400u, 777u}) {
    const ChainRequest chain = Kept(2, {.ttl_s = ttl});
    ASSERT_EQ(Store(chain), 2u);
    Pass(ttl - 1);
    peer = world->Connect();  // Tickets end, too.
    EXPECT_EQ(Hits(chain), 2u) << ttl;
    EXPECT_EQ(Use(chain), 2u);  // A fixed end does not move.
    Pass(2);
    EXPECT_EQ(Hits(chain), 0u) << ttl;
    EXPECT_EQ(Why(chain), MissReason::kExpired) << ttl;
  }
}

TEST_F(NodeShardRetention, ASlidingTimeBeginsAnewWithEachUse) {
  const ChainRequest chain = Kept(2, {.ttl_s = 300, .sliding = true});
  ASSERT_EQ(Store(chain), 2u);
  for (int i = 0; i < 5; ++i) {
    Pass(299);
    EXPECT_EQ(Use(chain), 2u) << i;
  }
  Pass(299);
  EXPECT_EQ(Hits(chain), 2u);  // A lookup is no use.
  Pass(2);
  EXPECT_EQ(Hits(chain), 0u);
}

TEST_F(NodeShardRetention, WhatHasExpiredGivesItsRoomBackAndMayBeStoredAgain) {
  const ChainRequest chain = Kept(4, {.ttl_s = 300});
  ASSERT_EQ(Store(chain), 4u);
  Pass(301);
  for (int i = 0; i < 10; ++i) Pass(1);
  EXPECT_EQ(world->shard->ram().parts(), 0u);
  EXPECT_EQ(Counter("expired_parts_total"), 4u);
  EXPECT_EQ(Store(chain), 4u);
  // Also in the moment before the sweep has seen it.
  world->clock.Advance(301 * kSecond);
  EXPECT_EQ(Store(chain), 4u);
  EXPECT_EQ(Hits(chain), 4u);
}

TEST_F(NodeShardRetention, AReaderKeepsItsLeaseOverTheEnd) {
  const ChainRequest chain = Kept(1, {.ttl_s = 300});
  ASSERT_EQ(Store(chain), 1u);
  Pass(299);
  const PlanReply plan = world->Plan(peer, Asked(chain), 77, 30'000);
  ASSERT_EQ(plan.hit_blocks, 1u);
  Pass(2);
  EXPECT_EQ(Hits(chain), 0u);
  EXPECT_TRUE(world->Verify(plan.parts[0], chain.blocks[0]));
  world->Release(peer, 77);
  EXPECT_EQ(world->shard->ram().parts(), 0u);
  EXPECT_EQ(world->shard->ram().doomed_parts(), 0u);
}

TEST_F(NodeShardRetention, HardPinsOutliveAnyPressureAndNoLonger) {
  const ChainRequest pinned = Kept(8, {.ttl_s = 3600, .pin = PinKind::kHard});
  ASSERT_EQ(Store(pinned), 8u);
  for (int i = 0; i < 40; ++i) Store(Kept(4, {}));
  EXPECT_EQ(Hits(pinned), 8u);
  Pass(3601);
  for (int i = 0; i < 10; ++i) Store(Kept(4, {}));
  EXPECT_EQ(Hits(pinned), 0u);
}

TEST_F(NodeShardRetention, HardPinsHoldAtMostHalfOfTheRam) {
  uint32_t stored = 0;
  for (int i = 0; i < 8; ++i) stored += Store(Kept(4, {.pin = PinKind::kHard}));
  EXPECT_EQ(stored, kRam / 2 / kPart);
  EXPECT_GT(Counter("pins_refused_total"), 0u);
  EXPECT_EQ(Store(Kept(4, {})), 4u);  // Others still find room.
}

TEST_F(NodeShardRetention, SoftPinsGoLast) {
  const ChainRequest soft = Kept(8, {.pin = PinKind::kSoft});
  ASSERT_EQ(Store(soft), 8u);
  for (int i = 0; i < 40; ++i) Store(Kept(4, {}));
  EXPECT_EQ(Hits(soft), 8u);
  uint32_t more = 0;
  for (int i = 0; i < 16; ++i) more += Store(Kept(4, {.pin = PinKind::kSoft}));
  EXPECT_EQ(more, 64u);  // When nothing else is left, they make room for each other.
}

TEST_F(NodeShardRetention, AnOfferWithALongerTimeMovesTheEnd) {
  ChainRequest chain = Kept(2, {.ttl_s = 300});
  ASSERT_EQ(Store(chain), 2u);
  chain.retention = {.ttl_s = 3600};
  EXPECT_EQ(Store(chain), 0u);  // It is there.
  Pass(3000);
  EXPECT_EQ(Hits(chain), 2u);
  chain.retention = {.ttl_s = 300};  // A shorter one does not.
  Store(chain);
  Pass(500);
  EXPECT_EQ(Hits(chain), 2u);
  Pass(200);
  EXPECT_EQ(Hits(chain), 0u);
}

// F22: over its quota a tenant gets what its policy says, at any fill of the pool, and others lose nothing.
TEST_F(NodeShardRetention, F22_OverQuotaTheStatedPolicyHoldsAtEveryFill) {
  constexpr uint64_t kQuota = 16 * uint64_t{kPart};
  for (const bool reject : {false, true}) {
    for (const uint64_t percent : {50u, 90u, 99u}) {
      Start(32 * kMiB);
      const PeerId other = ConnectAs("other"), mine = ConnectAs("mine");
      const QuotaRequest set{.tenant = "mine", .limits = {.quota_bytes = kQuota, .reject_when_full = reject}};
      EXPECT_EQ(RowOf(Quota(set), "mine").limits, set.limits);
      // The other one fills the pool so far that with all of the quota it is as full as asked for.
      std::vector<ChainRequest> others;
      peer = other;
      while (world->shard->ram().used_bytes() + kQuota + kPart <= 32 * kMiB * percent / 100) {
        others.push_back(Kept(1, {}));
        ASSERT_EQ(Store(others.back()), 1u);
      }
      peer = mine;
      uint64_t stored = 0;
      for (int i = 0; i < 32; ++i) stored += Store(Kept(1, {}));
      const QuotaReply::Row row = RowOf(Quota({}), "mine");
      EXPECT_EQ(row.used_bytes, kQuota) << reject << percent;
      EXPECT_EQ(stored, reject ? 16u : 32u) << percent;
      EXPECT_EQ(row.evicted_bytes, reject ? 0 : 16 * uint64_t{kPart}) << percent;
      EXPECT_EQ(row.rejected_bytes, reject ? 16 * uint64_t{kPart} : 0) << percent;
      EXPECT_EQ(RowOf(Quota({}), "other").evicted_bytes, 0u);
      for (const ChainRequest& chain : others) EXPECT_EQ(Hits(chain), 1u);
      // At once, without a restart.
      const QuotaRequest more{.tenant = "mine",
                              .limits = {.quota_bytes = 2 * kQuota, .reject_when_full = reject}};
      Quota(more);
      if (percent == 50) {
        EXPECT_EQ(Store(Kept(1, {})), 1u);
      }
    }
  }
}

TEST_F(NodeShardRetention, OthersTakeNothingBelowAFloor) {
  const PeerId other = ConnectAs("other"), mine = ConnectAs("mine");
  Quota({.tenant = "mine", .limits = {.floor_bytes = 4 * uint64_t{kPart}}});
  peer = mine;
  const ChainRequest kept = Kept(4, {});
  ASSERT_EQ(Store(kept), 4u);
  peer = other;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Store(Kept(4, {})), 4u);
  peer = mine;
  EXPECT_EQ(Hits(kept), 4u);
}

TEST_F(NodeShardRetention, FloorsAboveHalfOfTheRamAreRefused) {
  world->Ask(peer, FrameType::kQuota, QuotaRequest{.tenant = "t", .limits = {.floor_bytes = kRam}});
  EXPECT_TRUE(world->HasReply(FrameType::kError));
  const std::vector<QuotaReply::Row> rows = Quota({}).rows;
  EXPECT_TRUE(std::none_of(rows.begin(), rows.end(), [](const auto& row) { return row.tenant == "t"; }));
}

TEST_F(NodeShardRetention, QuotaNeedsTheAdminRight) {
  peer = world->Connect(kRightRead | kRightWrite);
  world->Ask(peer, FrameType::kQuota, QuotaRequest{.tenant = "default", .limits = {.quota_bytes = 1}});
  EXPECT_TRUE(world->HasReply(FrameType::kError));
  EXPECT_EQ(world->shard->ram().holders().tenants()[0].limits.quota_bytes, 0u);
}

TEST_F(NodeShardRetention, RunsAreHotWarmAndCold) {
  const ChainRequest hot = Kept(2, {}), warm = Kept(2, {}), cold = Kept(2, {});
  for (const ChainRequest* chain : {&cold, &warm, &hot}) {
    ASSERT_EQ(Store(*chain), 2u);
    EXPECT_EQ(Use(*chain), 2u);
    Pass(chain == &cold ? 590 : chain == &warm ? 61 : 0);
  }
  Use(hot);
  const NodeStats stats = world->shard->Stats();
  ASSERT_EQ(stats.runs.size(), 3u);
  EXPECT_EQ(stats.runs[0].run, ToHex(hot.runs[0].run_key, 8));
  EXPECT_EQ(stats.runs[0].uses, 2u);
  std::map<std::string, std::string> temperature;
  for (const RunStats& run : stats.runs) temperature[run.run] = run.temperature;
  EXPECT_EQ(temperature[ToHex(hot.runs[0].run_key, 8)], "hot");
  EXPECT_EQ(temperature[ToHex(warm.runs[0].run_key, 8)], "warm");
  EXPECT_EQ(temperature[ToHex(cold.runs[0].run_key, 8)], "cold");
}

}  // namespace
}  // namespace cistern
