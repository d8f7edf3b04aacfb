// The nodes' eviction policies behind PLAN, OFFER, PUT and RELEASE.
#include <gtest/gtest.h>

#include <vector>

#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

constexpr uint32_t kPart = 4096;
constexpr uint64_t kRam = 8u << 20;  // 2,048 parts.

class Evicting : public ::testing::TestWithParam<const char*> {
 protected:
  Evicting() : w(kRam, 1, GetParam()), peer(w.Connect()) {}

  // What a request does: plan, store what was missing, let go. Returns the blocks that hit.
  uint32_t Request(const std::vector<BlockKey>& blocks, uint64_t plan_id) {
    w.clock.Advance(100 * kMillisecond);
    const uint32_t hit = w.Plan(peer, w.Chain(blocks, kPart), plan_id).hit_blocks;
    if (hit < blocks.size()) Put(blocks, hit);
    if (hit > 0) w.Release(peer, plan_id);
    return hit;
  }
  void Put(const std::vector<BlockKey>& blocks, uint32_t from) {
    ChainRequest rest = w.Chain({blocks.begin() + from, blocks.end()}, kPart);
    rest.depth = from;
    w.Store(peer, rest);
  }
  uint64_t Reachable(const std::vector<std::vector<BlockKey>>& chains) {
    uint64_t blocks = 0;
    for (const auto& chain : chains) blocks += w.Lookup(peer, w.Chain(chain, kPart)).hit_blocks;
    return blocks;
  }
  ShardWorld w;
  PeerId peer;
};
INSTANTIATE_TEST_SUITE_P(All, Evicting, ::testing::Values("slru", "lru", "cistern"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(Evicting, KeepsNothingThatCannotBeReached) {
  std::vector<std::vector<BlockKey>> chains;
  for (int i = 0; i < 100; ++i) chains.push_back(w.Blocks(1 + w.random.Below(90)));
  for (uint64_t i = 1; i <= 1500; ++i) {
    std::vector<BlockKey>& chain = chains[w.random.Below(chains.size())];
    Request({chain.begin(), chain.begin() + 1 + static_cast<long>(w.random.Below(chain.size()))}, i);
  }
  EXPECT_GT(w.shard->counters().evicted_parts, 1000u);
  EXPECT_EQ(w.shard->ram().parts(), kRam / kPart);
  EXPECT_EQ(Reachable(chains), w.shard->ram().parts());
}

TEST_P(Evicting, KeepsChainsWholeWhosePutsInterleave) {
  std::vector<std::vector<BlockKey>> chains;
  for (int i = 0; i < 60; ++i) chains.push_back(w.Blocks(64));
  uint64_t plan = 0;
  for (int round = 0; round < 300; ++round) {
    const auto& one = chains[w.random.Below(chains.size())];
    const auto& other = chains[w.random.Below(chains.size())];
    w.clock.Advance(100 * kMillisecond);
    const uint64_t first = ++plan, second = ++plan;
    const uint32_t one_hit = w.Plan(peer, w.Chain(one, kPart), first).hit_blocks;
    const uint32_t other_hit = w.Plan(peer, w.Chain(other, kPart), second).hit_blocks;
    if (one_hit < one.size()) Put(one, one_hit);
    if (other_hit < other.size()) Put(other, other_hit);
    w.Release(peer, first);
    w.Release(peer, second);
  }
  EXPECT_GT(w.shard->counters().evicted_parts, 1000u);
  EXPECT_EQ(Reachable(chains), w.shard->ram().parts());
}

}  // namespace
}  // namespace cistern
