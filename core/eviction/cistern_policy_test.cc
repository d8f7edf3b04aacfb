#include "core/eviction/cistern_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/eviction/replay.h"
#include "core/random.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

const auto kAny = [](EntryId) { return true; };

// Thirty conversations go on in turn while a stream of prompts passes that nobody asks for again.
TEST(CisternPolicy, KeepsWhatComesBackThroughAStreamOfOneTimePrompts) {
  TraceIds requests;
  uint32_t next = 1'000;
  for (uint32_t round = 0; round < 200; ++round) {
    for (uint32_t talk = 0; talk < 30; ++talk) {
      requests.push_back({talk * 10, talk * 10 + 1, talk * 10 + 2});
      requests.push_back({next, next + 1, next + 2, next + 3});
      next += 4;
    }
  }
  const ReplayTrace trace = MakeReplayTrace(requests);
  constexpr uint32_t kCapacity =
      120;  // The conversations and a little; what passes between two turns is 200.
  for (const ReplayFlow flow : {ReplayFlow::kPlain, ReplayFlow::kNode}) {
    EXPECT_EQ(ReplayPolicy("lru", trace, kCapacity, flow)->hit_blocks, 0u);
    EXPECT_GT(ReplayPolicy("cistern", trace, kCapacity, flow)->HitRatio(), 0.4);  // 3 of 7 blocks come back.
  }
}

// A request longer than the pool: what stays is its head.
TEST(CisternPolicy, KeepsTheHeadOfALongPrompt) {
  TraceIds requests(20);
  for (uint32_t b = 0; b < 100; ++b) {
    for (auto& chain : requests) chain.push_back(b);
  }
  for (const ReplayFlow flow : {ReplayFlow::kPlain, ReplayFlow::kNode}) {
    EXPECT_EQ(ReplayPolicy("cistern", MakeReplayTrace(requests), 50, flow)->hit_blocks, 19u * 50);
  }
}

// Whatever passes through, ghosts and learning keep their size.
TEST(CisternPolicy, IsBoundedHoweverMuchPasses) {
  constexpr uint32_t kSlots = 1000;
  CisternPolicy policy(kSlots);
  Random random(3);
  std::vector<uint64_t> key_in(kSlots);
  uint64_t full = 0;
  uint32_t used = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint64_t> keys(1 + random.Below(20));
    for (uint64_t& key : keys) key = random.Next();
    const UseId use = policy.Begin({.tick = static_cast<PolicyTick>(i * 100), .here = {}, .missing = keys});
    for (size_t b = keys.size(); b-- > 0;) {
      EntryId slot = used;
      if (used == kSlots) {
        slot = *policy.Victim(kAny);
        policy.Evicted(slot, key_in[slot]);
      } else {
        ++used;
      }
      key_in[slot] = keys[b];
      policy.Insert(use, slot, {.key = keys[b], .depth = static_cast<uint32_t>(b)});
    }
    ASSERT_LE(policy.watched_runs(), WatchList::kWatchesMax);
    if (i == 60'000) full = policy.memory_bytes();
  }
  EXPECT_GT(policy.watched_runs(), WatchList::kWatchesMax / 4) << "nothing is learned of a load this large";
  EXPECT_LE(policy.memory_bytes(), full * 101 / 100);
  EXPECT_LE(policy.memory_bytes(), 2u << 20);
}

// A pool that was large and has few entries left, which may not go: each search looks at a bounded part of
// it, and what may go is found.
TEST(CisternPolicy, SearchesABoundedPartOfATableThatIsMostlyEmpty) {
  constexpr uint32_t kSlots = 200'000;
  constexpr EntryId kLeaf = 150'000, kParent = 100'000, kHead = 50'000;
  CisternPolicy policy(kSlots);
  for (EntryId id = 0; id < kSlots; ++id) {
    const UseId use = policy.Begin({.tick = id, .here = {}, .missing = {}});
    if (id == kLeaf || id == kParent || id == kHead) continue;
    policy.Insert(use, id, {.key = id + 1, .depth = 0});
  }
  const UseId use = policy.Begin({.tick = kSlots, .here = {}, .missing = {}});
  policy.Insert(use, kLeaf, {.key = 1, .depth = 2});
  policy.Insert(use, kParent, {.key = 2, .depth = 1});
  policy.Insert(use, kHead, {.key = 3, .depth = 0});
  for (EntryId id = 0; id < kSlots; ++id) {
    if (id != kLeaf && id != kParent && id != kHead) policy.Erase(id);
  }
  EXPECT_EQ(policy.Victim([](EntryId id) { return id != kLeaf; }), kParent);
  EXPECT_EQ(policy.Victim([](EntryId id) { return id == kHead; }), kHead);
  const uint64_t before = policy.scanned_entries();
  EXPECT_EQ(policy.Victim([](EntryId) { return false; }), std::nullopt);
  EXPECT_LE(policy.scanned_entries() - before, CisternPolicy::kTableScanMax);
  EXPECT_GT(policy.scanned_entries(), before);
}

// After a change of load, with all that it learned from the other.
TEST(CisternPolicy, ForgetsAnotherLoad) {
  const std::string chat = TraceFile(kConversationTrace), other = TraceFile(kSyntheticTrace);
  if (chat.empty() || other.empty()) GTEST_SKIP() << "the public traces are absent";
  const ReplayTrace second = ReadReplayTrace(chat);
  TraceIds both = ReadTraceIds(other);
  std::vector<int64_t> times = ReadReplayTrace(other).times_ms;
  const size_t before = both.size();
  for (size_t i = 0; i < second.requests.size(); ++i) {
    both.push_back(second.requests[i]);
    for (uint32_t& id : both.back()) id += 1u << 24;
    times.push_back(times[before - 1] + second.times_ms[i]);
  }
  const ReplayTrace mixed = MakeReplayTrace(both, times);
  ReplayTrace first = mixed;
  first.requests.resize(before);
  for (const double share : {.01, .05}) {
    const auto capacity = static_cast<uint32_t>(second.unique * share);
    const uint64_t hits = ReplayPolicy("cistern", mixed, capacity)->hit_blocks -
                          ReplayPolicy("cistern", first, capacity)->hit_blocks;
    const auto lru = ReplayPolicy("lru", second, capacity);
    EXPECT_GE(static_cast<double>(hits) / static_cast<double>(lru->blocks), lru->HitRatio() - .015);
  }
}

// What the policy has to reach, on whole traces at 1, 2, 5, 10, 20, 50 % of their unique blocks.
struct Bars {
  const char* trace;
  double ratio[6];
};
constexpr double kShares[] = {.01, .02, .05, .1, .2, .5};
constexpr Bars kBars[] = {{kConversationTrace, {.104, .147, .215, .290, .346, .3615}},
                          {kSyntheticTrace, {.045, .085, .167, .283, .413, .605}},
                          {kAgenticTrace, {.495, .715, .919, .953, .961, .962}}};

TEST(CisternPolicy, ReachesItsBarsOnThePublicTraces) {
  for (const Bars& bars : kBars) {
    const std::string path = TraceFile(bars.trace);
    if (path.empty()) GTEST_SKIP() << bars.trace << " is absent";
    const ReplayTrace trace = ReadReplayTrace(path);
    for (int i = 0; i < kReplaySizes; ++i) {
      const auto capacity = static_cast<uint32_t>(trace.unique * kShares[i]);
      const double lru = ReplayPolicy("lru", trace, capacity)->HitRatio();
      const double ours = ReplayPolicy("cistern", trace, capacity)->HitRatio();
      EXPECT_GE(ours, std::max(bars.ratio[i], lru - .002)) << bars.trace << ' ' << kShares[i];
    }
  }
}

// The order in which a node calls leaves less room: space is made before it is known what comes.
TEST(CisternPolicy, IsNowhereBelowLruAsNodesCallIt) {
  for (const char* name : {kConversationTrace, kSyntheticTrace}) {
    const std::string path = TraceFile(name);
    if (path.empty()) GTEST_SKIP() << name << " is absent";
    const ReplayTrace trace = ReadReplayTrace(path);
    for (int i = 0; i < kReplaySizes; ++i) {
      const auto capacity = static_cast<uint32_t>(trace.unique * kShares[i]);
      const auto lru = ReplayPolicy("lru", trace, capacity, ReplayFlow::kNode);
      const auto ours = ReplayPolicy("cistern", trace, capacity, ReplayFlow::kNode);
      EXPECT_GE(ours->HitRatio(), lru->HitRatio() - .002) << name << ' ' << kShares[i];
      EXPECT_EQ(ours->stranding_evictions, 0u);
    }
  }
}

}  // namespace
}  // namespace cistern
