#include "core/eviction/baselines/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "core/random.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

uint64_t Hits(std::string_view policy, const TraceIds& requests, uint32_t capacity) {
  return SimulatePolicy(policy, MakeReplayTrace(requests), capacity)->hit_blocks;
}

TEST(Baselines, NamesThoseThereAreWhenAskedForAnother) {
  const absl::Status status = SimulatePolicy("clairvoyant", MakeReplayTrace({{1}}), 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const std::string& name : SimulatedPolicies()) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
    EXPECT_TRUE(SimulatePolicy(name, MakeReplayTrace({{1}, {1}}), 1).ok()) << name;
  }
}

// Three slots, worked out by hand: chains 1-2, 1-3, 4, 1-2, 1-2.
TEST(Baselines, CountPrefixConsistentHits) {
  const TraceIds requests = {{1, 2}, {1, 3}, {4}, {1, 2}, {1, 2}};
  EXPECT_EQ(Hits("lru", requests, 3), 1u + 0 + 1 + 2);  // 2 was the oldest when 4 came.
  EXPECT_EQ(Hits("fifo", requests, 3),
            1u + 0 + 1 + 2);  // 1 goes when 2 comes again, and comes in once more behind it.
  EXPECT_EQ(Hits("optimum", requests, 3), 1u + 0 + 2 + 2);
  EXPECT_EQ(Hits("second-sighting", requests, 3), 0u + 0 + 1 + 2);
}

TEST(Baselines, LfuKeepsTheMostUsedAndLru2WhatWasUsedTwice) {
  const TraceIds requests = {{1}, {1}, {1}, {2}, {3}, {1}};
  EXPECT_EQ(Hits("lfu", requests, 2), 2u + 1);
  EXPECT_EQ(Hits("lru2", requests, 2), 2u + 1);
  EXPECT_EQ(Hits("lru", requests, 2), 2u + 0);
}

TEST(Baselines, GdsfLetsOldFameGo) {
  TraceIds requests(5, {1});
  for (uint32_t i = 0; i < 40; ++i) {
    requests.push_back({10 + i});
    requests.push_back({10 + i});
  }
  requests.push_back({1});
  EXPECT_EQ(Hits("lfu", requests, 2), 4u + 40 + 1);
  EXPECT_EQ(Hits("gdsf", requests, 2), 4u + 40 + 0);
}

TEST(Baselines, NothingBeatsTheOptimum) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TraceIds requests;
    for (int i = 0; i < 800; ++i) {
      const auto session = static_cast<uint32_t>(random.Below(60)) * 100;
      requests.emplace_back();
      for (uint32_t b = 0; b < 1 + random.Below(12); ++b) requests.back().push_back(session + b);
    }
    const ReplayTrace trace = MakeReplayTrace(requests);
    for (const uint32_t capacity : {10u, 60u, 200u}) {
      const uint64_t most = ReplayOptimum(trace, capacity).hit_blocks;
      for (const std::string& name : SimulatedPolicies()) {
        EXPECT_LE(SimulatePolicy(name, trace, capacity)->hit_blocks, most) << name << ' ' << capacity;
      }
    }
  }
}

TEST(Baselines, ABlockLivesFromItsLastUse) {
  const ReplayTrace trace = MakeReplayTrace({{1, 2}, {1}, {1, 2}, {1}}, {0, 6000, 12'000, 30'000});
  EXPECT_EQ(ReplaySlidingTtl(trace, 10'000).hit_blocks, 1u + 1 + 0);
  EXPECT_EQ(ReplaySlidingTtl(trace, 18'000).hit_blocks, 1u + 2 + 1);
}

TEST(ReplayTrace, NumbersBlocksAnewAndNeverGoesBackInTime) {
  const ReplayTrace trace = MakeReplayTrace({{7, 9}, {7, 3}}, {500, 200});
  EXPECT_EQ(trace.unique, 3u);
  EXPECT_EQ(trace.requests, (TraceIds{{0, 1}, {0, 2}}));
  EXPECT_EQ(trace.times_ms, (std::vector<int64_t>{500, 500}));
}

// From an independent simulator (its digits), at 1, 2, 5, 10, 20, 50 % of the unique blocks.
struct Known {
  const char* policy;
  double ratio[6];
};
constexpr double kShares[] = {.01, .02, .05, .1, .2, .5};
constexpr Known kConversation[] = {{"lru", {.0525, .0793, .1958, .2789, .3453, .3631}},
                                   {"fifo", {.0513, .0767, .1759, .2485, .3133, .3556}},
                                   {"s3fifo", {.0755, .1081, .1910, .2437, .3067, .3627}},
                                   {"lfu", {.0582, .0833, .1276, .1949, .3069, .3627}},
                                   {"gdsf", {.0554, .0853, .2065, .2883, .3397, .3631}},
                                   {"second-sighting", {.0853, .1442, .2010, .2124, .2133, .2134}},
                                   {"optimum", {.2464, .3142, .3664, .3664, .3664, .3664}}};
constexpr Known kSynthetic[] = {{"lru", {.0381, .0778, .1566, .2623, .3931, .5888}},
                                {"fifo", {.0396, .0737, .1524, .2476, .3714, .5502}},
                                {"s3fifo", {.0390, .0820, .1565, .2697, .4016, .6035}},
                                {"lfu", {.0121, .0358, .1061, .1769, .3302, .6030}},
                                {"gdsf", {.0374, .0798, .1591, .2508, .4011, .5969}},
                                {"second-sighting", {.0407, .0807, .1642, .2723, .4028, .4899}},
                                {"optimum", {.1854, .2613, .3956, .5063, .6080, .6396}}};
// The first three sizes alone: this trace is long.
constexpr Known kAgentic[] = {{"lru", {.3802, .6964, .9209}},    {"fifo", {.3634, .6374, .8662}},
                              {"s3fifo", {.4682, .6792, .8994}}, {"lfu", {.0249, .0384, .0840}},
                              {"gdsf", {.3606, .5896, .8464}},   {"second-sighting", {.3825, .6893, .8932}},
                              {"optimum", {.6742, .8448, .9496}}};

template <size_t N>
void ExpectKnown(const char* name, const Known (&table)[N]) {
  const std::string path = TraceFile(name);
  if (path.empty()) GTEST_SKIP() << name << " is absent";
  const ReplayTrace trace = ReadReplayTrace(path);
  ASSERT_FALSE(trace.requests.empty());
  for (const Known& row : table) {
    for (int i = 0; i < kReplaySizes && row.ratio[i] > 0; ++i) {
      const auto score = SimulatePolicy(row.policy, trace, static_cast<uint32_t>(trace.unique * kShares[i]));
      EXPECT_EQ(std::round(score->HitRatio() * 1e4), std::round(row.ratio[i] * 1e4))
          << name << ' ' << row.policy << ' ' << kShares[i] << ": " << score->HitRatio();
    }
  }
}

TEST(Baselines, HaveTheKnownFiguresOnConversation) { ExpectKnown(kConversationTrace, kConversation); }
TEST(Baselines, HaveTheKnownFiguresOnSynthetic) { ExpectKnown(kSyntheticTrace, kSynthetic); }
TEST(Baselines, HaveTheKnownFiguresOnAgentic) { ExpectKnown(kAgenticTrace, kAgentic); }

TEST(Baselines, AFiveMinuteTtlKeepsTheKnownShareOfIdealHits) {
  const std::pair<const char*, double> known[] = {
      {kConversationTrace, .79}, {kSyntheticTrace, .91}, {kAgenticTrace, .95}};
  for (const auto& [name, share] : known) {
    const std::string path = TraceFile(name);
    if (path.empty()) GTEST_SKIP() << name << " is absent";
    const ReplayTrace trace = ReadReplayTrace(path);
    const double ideal = ReplaySlidingTtl(trace, INT64_MAX).HitRatio();
    EXPECT_NEAR(ReplaySlidingTtl(trace, 300'000).HitRatio() / ideal, share, .006) << name;
  }
}

}  // namespace
}  // namespace cistern
