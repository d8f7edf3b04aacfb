// Times to live, pins and quotas of a shard with a disk, over restarts.
#include "cache_node/shard_fixture.h"

namespace cistern {
namespace {

using NodeShardRetention = ShardFixture;

TEST_F(NodeShardRetention, SoftPinsMayBeDemoted) {
  StartWithDisk();
  const ChainRequest soft = Kept(8, {.pin = PinKind::kSoft});
  ASSERT_EQ(Store(soft), 8u);
  for (int i = 0; i < 12; ++i) Store(Kept(4, {})), Settle();
  EXPECT_EQ(world->shard->ram().FindLayout(world->layout) == kNoLayout, false);
  EXPECT_EQ(Use(soft), 8u);
  EXPECT_GT(Counter("nvme_staged_parts_total"), 0u);
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

// Where many coordinates are in use a block's end takes several turns: it does not take along what is stored
// anew between them.
TEST_F(NodeShardRetention, WhatIsStoredAnewWhileItsBlockLeavesTheDiskStays) {
  StartWithDisk();
  const std::vector<std::byte> bytes(64);
  for (uint32_t first = 0; first < 2000; first += 200) {
    RecordHeader header;
    for (uint32_t i = 0; i < 200; ++i) {
      header.parts.push_back({.coord = PartCoord::Unpack(first + i),
                              .at = RoundUpTo(header.PayloadBytes(), kPartAlign),
                              .length = 64,
                              .crc = Crc32c(bytes.data(), 64)});
    }
    const std::vector<const std::byte*> data(200, bytes.data());
    ASSERT_EQ(disk().log().Append(header, data), DiskLog::Appended::kOk);
  }
  ChainRequest chain = world->Chain(world->Blocks(1), kPart, {{.group = 255}});
  chain.retention = {.ttl_s = 300};
  ASSERT_EQ(Store(chain), 1u);
  Settle();
  const auto on_disk = [&] { return disk().log().Find(chain.blocks[0].hash, chain.coords[0]) != nullptr; };
  world->clock.Advance(Nanos{302} * kSecond);
  Turn();
  ASSERT_TRUE(on_disk()) << "its end takes more than a turn";
  ASSERT_EQ(Store(chain), 1u);
  Turns(100);
  EXPECT_TRUE(on_disk());
  EXPECT_EQ(Hits(chain), 1u);
  Pass(302);
  EXPECT_FALSE(on_disk());
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

// A row that cannot be read limits nobody: that is counted, and the log says whose it was.
TEST_F(NodeShardRetention, QuotasThatCannotBeReadAreNamedAndCounted) {
  StartWithDisk();
  Quota({.tenant = "one", .limits = {.quota_bytes = kPart}});
  Quota({.tenant = "two", .limits = {.quota_bytes = 2 * uint64_t{kPart}}});
  EXPECT_EQ(Counter("quota_rows_left_out_total"), 0u);
  for (auto& [key, value] : values) {
    if (key.find("two") != std::string::npos) value = "quota=many";
  }
  StartWithDisk();
  EXPECT_EQ(RowOf(Quota({}), "one").limits.quota_bytes, uint64_t{kPart});
  EXPECT_EQ(Counter("quota_rows_left_out_total"), 1u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("two"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("quota=many"), std::string::npos) << warnings[0];
}

// Reclaim carries pinned parts on, also after a start; what nobody pinned or read goes.
TEST_F(NodeShardRetention, PinsOutliveARestart) {
  StartWithDisk();
  const ChainRequest hard = Kept(2, {.pin = PinKind::kHard}), soft = Kept(2, {.pin = PinKind::kSoft});
  const ChainRequest plain = Kept(2, {});
  for (const ChainRequest* chain : {&hard, &soft, &plain}) ASSERT_EQ(Store(*chain), 2u);
  Settle();
  StartWithDisk();
  for (int i = 0; i < 1500; ++i) Store(Kept(2, {})), Settle();  // Thrice what the log holds.
  EXPECT_GT(Counter("nvme_reclaimed_extents_total"), 0u);
  EXPECT_EQ(Use(hard), 2u);
  EXPECT_EQ(Use(soft), 2u);
  EXPECT_EQ(Use(plain), 0u);
  EXPECT_EQ(world->shard->ram().holders().tenants()[0].pinned_bytes, 2 * uint64_t{kPart});
}

// F22: what a plan brings back from disk is its tenant's, within the quota, also where that refuses puts.
TEST_F(NodeShardRetention, F22_WhatComesBackFromDiskIsChargedToWhoAsksForIt) {
  for (const bool reject : {false, true}) {
    files = std::make_shared<MemoryFiles>();
    values.clear();
    StartWithDisk();
    peer = ConnectAs("mine");
    const ChainRequest first = Kept(4, {}), second = Kept(4, {.ttl_s = 3600});
    for (const ChainRequest* chain : {&first, &second}) ASSERT_EQ(Store(*chain), 4u);
    Settle();
    StartWithDisk();
    Quota({.tenant = "mine", .limits = {.quota_bytes = 4 * uint64_t{kPart}, .reject_when_full = reject}});
    peer = ConnectAs("mine");
    for (const ChainRequest* chain : {&first, &second, &first}) {
      EXPECT_EQ(Use(*chain), 4u);
      EXPECT_EQ(RowOf(Quota({}), "mine").used_bytes, 4 * uint64_t{kPart});
      EXPECT_EQ(RowOf(Quota({}), "default").used_bytes, 0u);
    }
    EXPECT_EQ(RowOf(Quota({}), "mine").evicted_parts, 8u);
    EXPECT_EQ(RowOf(Quota({}), "mine").rejected_parts, 0u);
    const ChainRequest both = world->Chain({first.blocks[0], first.blocks[1], first.blocks[2],
                                            first.blocks[3], second.blocks[0], second.blocks[1]},
                                           kPart);
    EXPECT_EQ(Use(both), 4u) << "a plan gets as much as the quota holds";
    EXPECT_EQ(RowOf(Quota({}), "mine").used_bytes, 4 * uint64_t{kPart});
  }
}

// Without a disk nothing of it outlives the process.
TEST_F(NodeShardRetention, WithoutADiskQuotasEndWithTheProcess) {
  Quota({.tenant = "default", .limits = {.quota_bytes = kPart}});
  Start();
  EXPECT_EQ(RowOf(Quota({}), "default").limits, QuotaLimits{});
}

}  // namespace
}  // namespace cistern
