// Times to live, pins and quotas of a shard, on simulated clocks.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/disk/memory_disk.h"
#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

constexpr uint32_t kPart = 256 << 10;
constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kRam = 8 * kMiB;  // 30 parts and their trailers' slabs.

class NodeShardRetention : public ::testing::Test {
 protected:
  NodeShardRetention() { Start(); }

  void Start(uint64_t ram = kRam) {
    world.reset();
    world = std::make_unique<ShardWorld>(ram);
    peer = world->Connect();
  }
  // With a disk, that a later start finds again. The boot clock begins anew; the wall clock goes on.
  void StartWithDisk() {
    world.reset();
    world = std::make_unique<ShardWorld>(kRam);
    DiskTierOptions options;
    options.log.capacity_bytes = uint64_t{4} * kExtentBytes;
    options.log.ring_bytes = kWriteRingMin;
    options.unix_now = [this] { return unix_now; };
    auto tier = DiskTier::Open(options, std::make_unique<MemoryDisk>(files, random),
                               std::make_unique<Manifest>(MakeMemoryManifest(values), values, false),
                               world->clock, 5);
    CISTERN_CHECK(tier.ok());
    world->shard->AttachDisk(*std::move(tier));
    peer = world->Connect();
    Settle();
  }
  void Turn() {
    world->shard->Poll();
    world->clock.Advance(kMillisecond / 2);
  }
  void Settle() {
    for (int i = 0; i < 20'000; ++i) {
      Turn();
      const DiskLog& log = world->shard->disk()->log();
      if (!log.recovering() && log.writer().appended() == log.writer().ended()) return;
    }
    CISTERN_CHECK(false);
  }
  void Pass(uint32_t seconds) {
    world->clock.Advance(Nanos{seconds} * kSecond);
    unix_now += seconds;
    for (int i = 0; i < 20; ++i) Turn();
  }
  ChainRequest Kept(uint32_t blocks, Retention retention) {
    ChainRequest chain = world->Chain(world->Blocks(blocks), kPart);
    chain.retention = retention;
    return chain;
  }
  ChainRequest Asked(ChainRequest chain) {
    chain.retention = {};
    return chain;
  }
  uint32_t Store(const ChainRequest& chain) {
    uint32_t ok = 0;
    for (const PartResult result : world->Store(peer, chain)) ok += result == PartResult::kOk;
    return ok;
  }
  uint32_t Hits(const ChainRequest& chain) { return world->Lookup(peer, Asked(chain)).hit_blocks; }
  MissReason Why(const ChainRequest& chain) {
    return world->Lookup(peer, Asked(chain), kFlagDetail).detail.why;
  }
  // A plan, that brings parts from disk; its parts are checked byte by byte and released.
  uint32_t Use(const ChainRequest& chain) {
    ChainRequest plan = Asked(chain);
    plan.plan_id = ++plan_id;
    plan.ttl_ms = 2000;
    world->Ask(peer, FrameType::kPlan, plan);
    for (int i = 0; i < 20'000 && !world->HasReply(FrameType::kPlanReply); ++i) Turn();
    const auto reply = world->Take<PlanReply>(FrameType::kPlanReply);
    for (size_t i = 0; i < reply.parts.size(); ++i)
      EXPECT_TRUE(world->Verify(reply.parts[i], chain.blocks[i])) << i;
    world->Release(peer, plan.plan_id);
    return reply.hit_blocks;
  }
  uint64_t Counter(const std::string& name) const { return world->shard->Stats().counters[name]; }
  PeerId ConnectAs(const std::string& tenant) {
    Hello hello = world->MakeHello();
    Ticket ticket;
    ticket.cluster = world->cluster;
    ticket.rights = kAllRights;
    ticket.tenant = tenant;
    ticket.expires_unix_s = world->unix_now + 3600;
    hello.ticket = SealTicket(ticket, world->key);
    auto made = world->transport.Accept(hello, false, nullptr);
    CISTERN_CHECK(made.ok());
    return *made;
  }
  QuotaReply Quota(const QuotaRequest& request) {
    world->Ask(peer, FrameType::kQuota, request);
    return world->Take<QuotaReply>(FrameType::kQuotaReply);
  }
  static QuotaReply::Row RowOf(const QuotaReply& reply, const std::string& tenant) {
    for (const QuotaReply::Row& row : reply.rows) {
      if (row.tenant == tenant) return row;
    }
    return {};
  }

  Random random{20261130};
  std::shared_ptr<MemoryFiles> files = std::make_shared<MemoryFiles>();
  ManifestValues values;
  int64_t unix_now = 1'800'000'000;
  std::unique_ptr<ShardWorld> world;
  PeerId peer = 0;
  uint64_t plan_id = 0;
};

TEST_F(NodeShardRetention, EachClassEndsInItsTime) {
  for (const uint32_t ttl : {300u, 1800u, 3600u, 86400u, 777u}) {
    const ChainRequest chain = Kept(2, {.ttl_s = ttl});
    ASSERT_EQ(Store(chain), 2u);
    Pass(ttl - 1);
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

TEST_F(NodeShardRetention, SoftPinsMayBeDemoted) {
  StartWithDisk();
  const ChainRequest soft = Kept(8, {.pin = PinKind::kSoft});
  ASSERT_EQ(Store(soft), 8u);
  for (int i = 0; i < 12; ++i) Store(Kept(4, {})), Settle();
  EXPECT_EQ(world->shard->ram().FindLayout(world->layout) == kNoLayout, false);
  EXPECT_EQ(Use(soft), 8u);
  EXPECT_GT(Counter("nvme_staged_parts_total"), 0u);
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

TEST_F(NodeShardRetention, TimesOutliveARestart) {
  StartWithDisk();
  const ChainRequest fixed = Kept(2, {.ttl_s = 3600}), any = Kept(2, {});
  const ChainRequest sliding = Kept(2, {.ttl_s = 3600, .sliding = true});
  for (const ChainRequest* chain : {&fixed, &sliding, &any}) ASSERT_EQ(Store(*chain), 2u);
  Settle();
  Pass(3000);
  EXPECT_EQ(Use(sliding), 2u);  // The manifest is told of the new end.
  unix_now += 100;
  StartWithDisk();
  EXPECT_EQ(Use(fixed), 2u);
  Pass(600);
  EXPECT_EQ(Use(fixed), 0u);
  EXPECT_EQ(Why(fixed), MissReason::kExpired);
  EXPECT_EQ(Use(sliding), 2u);
  EXPECT_EQ(Use(any), 2u);
  unix_now += 3601;
  StartWithDisk();
  EXPECT_EQ(Use(sliding), 0u);
  EXPECT_EQ(Use(any), 2u);
}

// A manifest that had to be made anew has lost the ends: what had one is a miss, never immortal.
TEST_F(NodeShardRetention, NothingOutlivesItsTimeWhenTheManifestIsLost) {
  StartWithDisk();
  const ChainRequest timed = Kept(2, {.ttl_s = 3600}), any = Kept(2, {});
  ASSERT_EQ(Store(timed), 2u);
  ASSERT_EQ(Store(any), 2u);
  Settle();
  values.clear();
  StartWithDisk();
  EXPECT_EQ(Use(timed), 0u);
  EXPECT_EQ(Use(any), 2u);
  EXPECT_EQ(Store(timed), 2u);
}

// F46's like for disks: a wall clock that jumps while a node is down, or up, makes nothing live longer.
TEST_F(NodeShardRetention, ClockJumpsMakeNothingLiveLonger) {
  StartWithDisk();
  const ChainRequest chain = Kept(2, {.ttl_s = 3600});
  ASSERT_EQ(Store(chain), 2u);
  Settle();
  unix_now -= 10 * 86400;  // Set back while it runs: the boot clock counts.
  for (int i = 0; i < 20; ++i) Turn();
  EXPECT_EQ(Use(chain), 2u);
  StartWithDisk();  // And over a restart its time begins anew at most.
  EXPECT_EQ(Use(chain), 2u);
  Pass(3601);
  EXPECT_EQ(Use(chain), 0u);
}

TEST_F(NodeShardRetention, ExpiredPartsLeaveTheDisk) {
  StartWithDisk();
  const ChainRequest chain = Kept(4, {.ttl_s = 300});
  ASSERT_EQ(Store(chain), 4u);
  Settle();
  EXPECT_EQ(world->shard->disk()->log().counters().durable_parts, 4u);
  Pass(302);
  EXPECT_EQ(world->shard->disk()->log().counters().durable_parts, 0u);
  EXPECT_EQ(Counter("nvme_expired_parts_total"), 4u);
  for (const auto& [key, value] : values) EXPECT_NE(key.substr(0, 4), "ttl/") << key;
  EXPECT_EQ(Store(chain), 4u);
  Settle();
  StartWithDisk();
  EXPECT_EQ(Use(chain), 4u);
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
}

TEST_F(NodeShardRetention, QuotasOutliveARestartAndGiveTheDefaultTime) {
  StartWithDisk();
  const QuotaRequest set{
      .tenant = "default",
      .limits = {.quota_bytes = 6 * uint64_t{kPart}, .reject_when_full = true, .retention = {.ttl_s = 300}}};
  Quota(set);
  StartWithDisk();
  EXPECT_EQ(RowOf(Quota({}), "default").limits, set.limits);
  const ChainRequest chain = Kept(2, {});
  ASSERT_EQ(Store(chain), 2u);
  Pass(301);
  EXPECT_EQ(Hits(chain), 0u);
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
