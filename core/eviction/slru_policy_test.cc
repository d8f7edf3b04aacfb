#include "core/eviction/slru_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/eviction/replay.h"
#include "core/random.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

const auto kAny = [](EntryId) { return true; };

// A pool under a policy, as a node has it: requests of keys that follow each other in one chain.
class Pool {
 public:
  explicit Pool(uint32_t slots) : slots_(slots), policy_(slots) {}

  void Request(const std::vector<uint64_t>& chain) {
    std::vector<EntryId> here;
    std::vector<uint64_t> missing;
    for (const uint64_t key : chain) {
      const auto found = slot_of_.find(key);
      if (found == slot_of_.end()) {
        missing.push_back(key);
      } else if (missing.empty()) {
        here.push_back(found->second);
      }
    }
    const UseId use = policy_.Begin({.tick = 0, .here = here, .missing = missing});
    for (size_t i = here.size(); i-- > 0;) policy_.Touch(use, here[i], static_cast<uint32_t>(i));
    while (free_.size() < missing.size()) {
      if (next_ < slots_) {
        free_.push_back(next_++);
      } else {
        EvictOne();
      }
    }
    for (size_t i = missing.size(); i-- > 0;) {
      const EntryId slot = free_.back();
      free_.pop_back();
      slot_of_[missing[i]] = slot;
      key_in_[slot] = missing[i];
      policy_.Insert(use, slot, {.key = missing[i], .depth = static_cast<uint32_t>(here.size() + i)});
    }
  }
  uint64_t EvictOne() {
    const EntryId slot = *policy_.Victim(kAny);
    const uint64_t key = key_in_.at(slot);
    policy_.Evicted(slot, key);
    slot_of_.erase(key);
    key_in_.erase(slot);
    free_.push_back(slot);
    return key;
  }
  bool Has(uint64_t key) const { return slot_of_.contains(key); }
  size_t size() const { return slot_of_.size(); }
  SlruPolicy& policy() { return policy_; }
  uint64_t KeyIn(EntryId slot) const { return key_in_.at(slot); }

 private:
  const uint32_t slots_;
  SlruPolicy policy_;
  EntryId next_ = 0;
  std::map<uint64_t, EntryId> slot_of_;
  std::map<EntryId, uint64_t> key_in_;
  std::vector<EntryId> free_;
};

// 42 talks of five blocks go on in turn, and between two of them a prompt passes that nobody asks for again.
// LRU holds nothing until it is asked for again.
constexpr uint32_t kSlots = 300;
constexpr uint64_t kTalks = 42;
void Teach(Pool& pool, uint64_t first_key) {
  uint64_t next = first_key + 1'000'000;
  for (int round = 0; round < 60; ++round) {
    for (uint64_t talk = 0; talk < kTalks; ++talk) {
      const uint64_t key = first_key + talk * 5;
      pool.Request({key, key + 1, key + 2, key + 3, key + 4});
      pool.Request({next, next + 1, next + 2, next + 3});
      next += 4;
    }
  }
}

TEST(SlruPolicy, IsLruUntilItHasLearned) {
  SlruPolicy policy(16);
  for (EntryId id = 0; id < 4; ++id) policy.Insert(0, id, {.key = id + 1});
  policy.Touch(0, 1, 0);
  policy.Insert(0, 4, {.key = 5});
  policy.Refresh(2);
  for (const EntryId id : {0u, 3u, 1u, 4u, 2u}) {
    EXPECT_EQ(policy.Victim(kAny), id);
    policy.Evicted(id, id + 1);
  }
  EXPECT_EQ(policy.patience(), 1);
}

TEST(SlruPolicy, LearnsToKeepWhatComesBack) {
  Pool pool(kSlots);
  Teach(pool, 1);
  EXPECT_GT(pool.policy().patience(), 2.5);
  for (uint64_t talk = 0; talk < kTalks; ++talk) EXPECT_TRUE(pool.Has(1 + talk * 5)) << talk;
}

TEST(SlruPolicy, IsNoMorePatientWhereNothingIsGainedByIt) {
  Pool pool(kSlots);
  Random random(5);
  // All come back alike, whether they have before or not.
  for (int i = 0; i < 60'000; ++i) pool.Request({1 + random.Below(3 * kSlots)});
  EXPECT_LT(pool.policy().patience(), 1.25);
}

TEST(SlruPolicy, UnlearnsIt) {
  Pool pool(kSlots);
  Teach(pool, 1);
  ASSERT_GT(pool.policy().patience(), 2.5);
  Random random(5);
  for (int i = 0; i < 60'000; ++i) pool.Request({1'000'000'000 + random.Below(3 * kSlots)});
  EXPECT_LT(pool.policy().patience(), 1.25);
}

// A chain that was evicted counts as one that came back, as far as it was here before; what it has gone on by
// is new.
TEST(SlruPolicy, KnowsAChainThatWasHereBefore) {
  Pool pool(kSlots);
  Teach(pool, 1);
  constexpr uint64_t kChain = 500'000, kOther = 600'000;
  pool.Request({kChain, kChain + 1, kChain + 2});
  while (pool.Has(kChain)) pool.EvictOne();
  pool.Request({kChain, kChain + 1, kChain + 2, kChain + 3, kChain + 4});
  pool.Request({kOther, kOther + 1});  // Later, and new.
  for (uint64_t key = 700'000; key < 700'040; ++key) pool.Request({key});
  std::vector<uint64_t> order;
  while (pool.size() > 0) {
    const uint64_t key = pool.EvictOne();
    if (key >= kChain && key < kOther + 2) order.push_back(key);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(kChain + 4, kChain + 3, kOther + 1, kOther, kChain + 2,
                                            kChain + 1, kChain));
}

TEST(SlruPolicy, NamesItsNextVictimsInTheirOrder) {
  Pool pool(kSlots);
  Teach(pool, 1);
  std::vector<uint64_t> told;
  pool.policy().Next([&](EntryId slot) {
    told.push_back(pool.KeyIn(slot));
    return told.size() < kSlots / 2;
  });
  ASSERT_EQ(told.size(), kSlots / 2);
  for (const uint64_t key : told) EXPECT_EQ(pool.EvictOne(), key);
}

TEST(SlruPolicy, IsBoundedHoweverMuchPasses) {
  Pool pool(kSlots);
  for (uint64_t key = 1; key < 5 * SlruPolicy::kGhostsMin; ++key) pool.Request({key});
  EXPECT_LE(pool.policy().memory_bytes(), kSlots * 12 + SlruPolicy::kGhostsMin * 16 + kUsesMax * 24);
}

constexpr double kShares[] = {.01, .02, .05, .1, .2, .5};

// What nodes run unasked must be worth it however the pool is split, on whatever traffic.
TEST(SlruPolicy, IsNowhereBelowLruOnSplitPools) {
  for (const char* name : {kConversationTrace, kSyntheticTrace, kAgenticTrace}) {
    const std::string path = TraceFile(name);
    if (path.empty()) GTEST_SKIP() << name << " is absent";
    const ReplayTrace trace = ReadReplayTrace(path);
    for (const uint32_t nodes : {1u, 2u, 8u}) {
      for (int i = 0; i < kReplaySizes; ++i) {
        const auto capacity = static_cast<uint32_t>(trace.unique * kShares[i]);
        const auto lru = ReplayPolicy("lru", trace, capacity, ReplayFlow::kNode, nodes);
        const auto ours = ReplayPolicy("slru", trace, capacity, ReplayFlow::kNode, nodes);
        EXPECT_GE(ours->HitRatio(), lru->HitRatio() - .002) << name << ' ' << nodes << ' ' << kShares[i];
        EXPECT_EQ(ours->stranding_evictions, 0u);
      }
    }
  }
}

// The loss by the split is won back: two nodes are above one LRU of all their memory.
TEST(SlruPolicy, TwoNodesHitMoreThanOneLruOfBoth) {
  const std::pair<const char*, double> bars[] = {{kConversationTrace, .21}, {kSyntheticTrace, .159}};
  for (const auto& [name, bar] : bars) {
    const std::string path = TraceFile(name);
    if (path.empty()) GTEST_SKIP() << name << " is absent";
    const ReplayTrace trace = ReadReplayTrace(path);
    const auto capacity = static_cast<uint32_t>(trace.unique * .05);
    const auto ours = ReplayPolicy("slru", trace, capacity, ReplayFlow::kNode, 2);
    const auto one = ReplayPolicy("lru", trace, capacity, ReplayFlow::kNode);
    EXPECT_GE(ours->HitRatio(), std::max(bar, one->HitRatio())) << name;
  }
}

}  // namespace
}  // namespace cistern
