// The small things of core that have no room of their own: clock, gate, random, map states, statistics,
// macros.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/gate.h"
#include "core/node_stats.h"
#include "core/random.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(BootClock, NeverGoesBack) {
  BootClock clock;
  Nanos last = clock.Now();
  EXPECT_GT(last, 0);
  for (int i = 0; i < 1000; ++i) {
    const Nanos now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SimClock, MovesOnlyWhenTold) {
  SimClock clock;
  const Nanos start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(3 * kMillisecond);
  EXPECT_EQ(clock.Now(), start + 3'000'000);
}

TEST(Gate, ClosesOnceEveryoneHasLeft) {
  Gate gate;
  int done = 0;
  EXPECT_TRUE(gate.TryEnter());
  EXPECT_TRUE(gate.TryEnter());
  gate.Close([&done] { ++done; });
  EXPECT_FALSE(gate.TryEnter());
  gate.Leave();
  EXPECT_EQ(done, 0);
  gate.Leave();
  EXPECT_EQ(done, 1);
}

TEST(Gate, ClosesAtOnceWhenEmpty) {
  Gate gate;
  int done = 0;
  gate.Close([&done] { ++done; });
  EXPECT_EQ(done, 1);
}

TEST(GateDeathTest, DiesWhenDestroyedWithSomeoneInside) {
  EXPECT_DEATH(
      {
        Gate gate;
        (void)gate.TryEnter();
      },
      "check failed");
}

TEST(Random, RepeatsItselfForASeedAndStaysBelowItsBound) {
  Random a(7);
  Random b(7);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = a.Below(13);
    EXPECT_LT(value, 13u);
    EXPECT_EQ(value, b.Below(13));
  }
  const double unit = a.Unit();
  EXPECT_GE(unit, 0);
  EXPECT_LT(unit, 1);
}

TEST(ClusterMap, NamesEveryState) {
  EXPECT_EQ(NodeStateName(NodeState::kJoining), "joining");
  EXPECT_EQ(NodeStateName(NodeState::kActive), "active");
  EXPECT_EQ(NodeStateName(NodeState::kDraining), "draining");
  EXPECT_EQ(NodeStateName(NodeState::kGone), "gone");
  EXPECT_EQ(NodeStateName(static_cast<NodeState>(9)), "unknown");
}

TEST(NodeStats, AddsUpShardsOfOneNode) {
  NodeStats shard;
  shard.tiers = {{.tier = "ram", .used_bytes = 10, .capacity_bytes = 100, .parts = 2}};
  shard.hit_blocks = 3;
  shard.miss_blocks = 4;
  shard.cpu_seconds = 1.5;
  shard.counters = {{"leases_live", 1}};
  shard.peers.resize(kPeerStatsMax);
  NodeStats node;
  MergeStats(shard, node);
  shard.tiers.push_back({.tier = "nvme", .used_bytes = 1, .capacity_bytes = 2, .parts = 3});
  shard.counters["x_total"] = 5;
  MergeStats(shard, node);
  ASSERT_EQ(node.tiers.size(), 2u);
  EXPECT_EQ(node.tiers[0].used_bytes, 20u);
  EXPECT_EQ(node.tiers[0].capacity_bytes, 200u);
  EXPECT_EQ(node.tiers[0].parts, 4u);
  EXPECT_EQ(node.tiers[1].parts, 3u);
  EXPECT_EQ(node.hit_blocks, 6u);
  EXPECT_EQ(node.miss_blocks, 8u);
  EXPECT_EQ(node.cpu_seconds, 1.5);
  EXPECT_THAT(node.counters, ElementsAre(Pair("leases_live", 2), Pair("x_total", 5)));
  EXPECT_EQ(node.peers.size(), kPeerStatsMax);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}
absl::StatusOr<int> Quarter(int value) {
  CISTERN_ASSIGN_OR_RETURN(const int half, Half(value));
  CISTERN_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacros, PassErrorsOnUnchanged) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Bytes, LoadsAndStoresUnaligned) {
  uint8_t buffer[9] = {};
  StoreLe<uint64_t>(buffer + 1, 0x0102030405060708);
  EXPECT_EQ(buffer[1], 8);
  EXPECT_EQ(LoadLe<uint64_t>(buffer + 1), 0x0102030405060708u);
}

}  // namespace
}  // namespace cistern
