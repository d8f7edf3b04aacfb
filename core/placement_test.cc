#include "core/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_set>

#include "core/random.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

BlockHash HashOf(uint64_t id) {
  BlockHash hash;
  Random random(id);
  for (size_t at = 0; at < hash.bytes.size(); at += 8) StoreLe(hash.bytes.data() + at, random.Next());
  return hash;
}

OwnerSet Owners(const std::vector<double>& weights) {
  OwnerSet set;
  for (size_t i = 0; i < weights.size(); ++i)
    set.owners.push_back({"node-" + std::to_string(i + 1), weights[i]});
  return set;
}

std::vector<std::pair<uint32_t, uint32_t>> Cut(uint32_t blocks, uint32_t cap) {
  std::vector<Run> runs;
  CutRuns(blocks, cap, runs);
  std::vector<std::pair<uint32_t, uint32_t>> out;
  for (const Run& run : runs) out.emplace_back(run.first, run.count);
  return out;
}

// Longest runs: what the router puts into its map (docs/adr/0006), and the design's.
constexpr uint32_t kCaps[] = {2, 8};

// How unevenly the unique blocks of `requests` fall on `owners` equal nodes: the fullest one over the mean.
double Imbalance(const std::vector<std::vector<uint32_t>>& requests, size_t owners, uint32_t cap) {
  const Placement placement(Owners(std::vector<double>(owners, 1)));
  std::unordered_set<uint32_t> seen;
  std::vector<double> blocks(owners);
  std::vector<Run> runs;
  for (const std::vector<uint32_t>& ids : requests) {
    CutRuns(static_cast<uint32_t>(ids.size()), cap, runs);
    for (const Run& run : runs) {
      const size_t owner = placement.Owner(HashOf(ids[run.first]));
      for (uint32_t i = 0; i < run.count; ++i)
        blocks[owner] += seen.insert(ids[run.first + i]).second ? 1 : 0;
    }
  }
  return *std::max_element(blocks.begin(), blocks.end()) * static_cast<double>(owners) /
         static_cast<double>(seen.size());
}

TEST(CutRuns, GrowsWithDepthUpToTheCap) {
  EXPECT_THAT(Cut(0, 8), ElementsAre());
  EXPECT_THAT(Cut(1, 8), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(Cut(26, 8), ElementsAre(std::pair(0, 1), std::pair(1, 1), std::pair(2, 2), std::pair(4, 4),
                                      std::pair(8, 8), std::pair(16, 8), std::pair(24, 2)));
  EXPECT_THAT(Cut(7, 2), ElementsAre(std::pair(0, 1), std::pair(1, 1), std::pair(2, 2), std::pair(4, 2),
                                     std::pair(6, 1)));
  EXPECT_THAT(Cut(40, 16), ElementsAre(std::pair(0, 1), std::pair(1, 1), std::pair(2, 2), std::pair(4, 4),
                                       std::pair(8, 16), std::pair(24, 16)));
  EXPECT_THAT(Cut(2, 0), ElementsAre(std::pair(0, 1), std::pair(1, 1)));
}

TEST(RunFirst, AgreesWithCutRunsForEveryCap) {
  for (uint32_t cap = 0; cap <= 20; ++cap) {
    for (const auto& [first, count] : Cut(200, cap)) {
      for (uint32_t i = first; i < first + count; ++i)
        ASSERT_EQ(RunFirst(i, cap), first) << i << " cap " << cap;
    }
  }
}

TEST(Placement, TakesActiveNodesOnly) {
  ClusterMap map;
  map.epoch = 4;
  map.nodes = {{"node-1", 1, NodeState::kActive, 1, {}},        {"node-2", 1, NodeState::kDraining, 1, {}},
               {"node-3", 1, NodeState::kJoining, 1, {}},       {"node-4", 1, NodeState::kGone, 1, {}},
               {"node-5", 1, NodeState::kActive, 2, {}},        {"node-6", 1, NodeState::kActive, 0, {}},
               {"node-7", 1, NodeState::kActive, -HUGE_VAL, {}}};
  const Placement placement(map);
  ASSERT_EQ(placement.size(), 2u);
  EXPECT_EQ(placement.owners().epoch, 4u);
  EXPECT_EQ(placement.owners().owners[0].id, "node-1");
  EXPECT_EQ(placement.owners().owners[1].id, "node-5");
  map.nodes.erase(map.nodes.begin() + 4);
  map.nodes.erase(map.nodes.begin());
  EXPECT_TRUE(Placement(map).empty());
}

TEST(Placement, GivesEachOwnerItsWeightsShare) {
  constexpr int kRuns = 60'000;
  const Placement placement(Owners({1, 2, 3}));
  std::vector<double> share(3);
  for (int i = 0; i < kRuns; ++i) share[placement.Owner(HashOf(i))] += 1.0 / kRuns;
  EXPECT_NEAR(share[0], 1 / 6.0, 0.008);
  EXPECT_NEAR(share[1], 2 / 6.0, 0.008);
  EXPECT_NEAR(share[2], 3 / 6.0, 0.008);
}

TEST(Placement, MovesOnlyARemovedOwnersRuns) {
  for (const std::vector<double>& weights :
       {std::vector<double>(6, 1), std::vector<double>{1, 2, 3, 1, 1, 5}}) {
    const OwnerSet all = Owners(weights);
    OwnerSet fewer = all;
    fewer.owners.erase(fewer.owners.begin() + 2);
    const Placement before(all);
    const Placement after(fewer);
    for (int i = 0; i < 20'000; ++i) {
      const std::string& was = all.owners[before.Owner(HashOf(i))].id;
      const std::string& is = fewer.owners[after.Owner(HashOf(i))].id;
      if (was != "node-3") {
        ASSERT_EQ(was, is);
      }
    }
  }
}

TEST(Placement, DoesNotDependOnTheOrderOfOwners) {
  const OwnerSet forth = Owners({1, 1, 2, 1});
  OwnerSet back = forth;
  std::reverse(back.owners.begin(), back.owners.end());
  const Placement a(forth);
  const Placement b(back);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(forth.owners[a.Owner(HashOf(i))].id, back.owners[b.Owner(HashOf(i))].id);
  }
}

// Clients and routers of different releases must agree on owners, so the ranking is pinned.
TEST(Placement, KeepsItsRankingBetweenReleases) {
  const Placement placement(Owners({1, 1, 1, 1, 1}));
  std::vector<size_t> owners;
  for (int i = 0; i < 12; ++i) owners.push_back(placement.Owner(HashOf(i)));
  EXPECT_THAT(owners, ElementsAre(3, 2, 1, 1, 2, 4, 4, 1, 4, 2, 0, 3));
}

TEST(Placement, RanksTheOwnerFirst) {
  for (const std::vector<double>& weights : {std::vector<double>(5, 2), std::vector<double>{1, 2, 3, 4, 5}}) {
    const Placement placement(Owners(weights));
    for (int i = 0; i < 2000; ++i) {
      const std::vector<size_t> top = placement.TopK(HashOf(i), 9);
      ASSERT_EQ(top.size(), 5u);
      ASSERT_EQ(top[0], placement.Owner(HashOf(i)));
      ASSERT_EQ(std::unordered_set<size_t>(top.begin(), top.end()).size(), 5u);
    }
    EXPECT_EQ(placement.TopK(HashOf(1), 2).size(), 2u);
  }
}

TEST(Placement, ScoresEqualWeightsLikeAnyWeights) {
  const Placement equal(Owners({1, 1, 1, 1}));
  const Placement nearly(Owners({1, 1, 1, 1 + 1e-12}));  // Takes the way with logarithms.
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(equal.Owner(HashOf(i)), nearly.Owner(HashOf(i)));
}

TEST(ShardOf, SpreadsRunsOverShards) {
  std::vector<int> count(3);
  for (int i = 0; i < 30'000; ++i) ++count[ShardOf(HashOf(i), 3)];
  for (const int runs : count) EXPECT_NEAR(runs, 10'000, 400);
  BlockHash last;
  last.bytes.fill(0xff);
  EXPECT_EQ(ShardOf(last, kShardsPerNodeMax), kShardsPerNodeMax - 1);
  EXPECT_EQ(ShardOf(BlockHash{}, kShardsPerNodeMax), 0u);
}

// 3,000 prompts of one application: a common first block, forty system prompts, own tails.
TEST(Placement, F45_SpreadsACommonPrefixOverOwners) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::vector<std::vector<uint32_t>> requests;
  uint32_t next = 10'000;
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint32_t> ids = {0};
    const auto prompt = static_cast<uint32_t>(random.Below(40));
    for (uint32_t b = 0; b < 20; ++b) ids.push_back(1 + prompt * 20 + b);
    for (uint64_t b = random.Below(40); b > 0; --b) ids.push_back(next++);
    requests.push_back(std::move(ids));
  }
  for (const uint32_t cap : kCaps) EXPECT_LE(Imbalance(requests, 8, cap), 1.1) << "runs of " << cap;
}

TEST(Placement, SpreadsThePublicTracesEvenly) {
  for (const char* const name : {kConversationTrace, kSyntheticTrace, kAgenticTrace}) {
    const std::string path = TraceFile(name);
    if (path.empty()) GTEST_SKIP() << name << " is absent";
    const std::vector<std::vector<uint32_t>> requests = ReadTraceIds(path);
    for (const uint32_t cap : kCaps) {
      const double imbalance = Imbalance(requests, 8, cap);
      std::printf("%s, runs of %u: max/mean %.3f\n", name, cap, imbalance);
      EXPECT_LE(imbalance, 1.1) << name << ", runs of " << cap;
    }
  }
}

}  // namespace
}  // namespace cistern
