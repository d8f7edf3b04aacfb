#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/bytes.h"
#include "core/eviction/replay.h"
#include "core/eviction/replay_pool.h"
#include "core/eviction_policy.h"
#include "core/placement.h"
#include "core/random.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<EvictionPolicy> Make(std::string_view name, uint32_t capacity = 16) {
  return *MakeEvictionPolicy(name, capacity);
}
const auto kAny = [](EntryId) { return true; };

// Inserts ids [from, to) as blocks of that depth, the deepest first.
void InsertChain(EvictionPolicy& policy, UseId use, EntryId from, EntryId to) {
  for (EntryId depth = to; depth-- > from;) policy.Insert(use, depth, {.key = depth + 1, .depth = depth});
}

TEST(EvictionPolicy, NamesThoseThereAreWhenAskedForAnother) {
  const absl::Status status = MakeEvictionPolicy("clairvoyant", 16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cistern"));
}

TEST(LruPolicy, DropsWhatWasUsedLongestAgo) {
  const auto policy = Make("lru");
  for (EntryId id : {0, 1, 2}) policy->Insert(0, id, {});
  policy->Touch(0, 0, 0);
  EXPECT_EQ(policy->Victim(kAny), 1u);
  policy->Evicted(1, 1);
  EXPECT_EQ(policy->Victim(kAny), 2u);
  policy->Erase(2);
  EXPECT_EQ(policy->Victim(kAny), 0u);
  policy->Evicted(0, 0);
  EXPECT_EQ(policy->Victim(kAny), std::nullopt);
}

TEST(LruPolicy, LooksAtNoMoreThanItsBound) {
  constexpr EntryId kEntries = kVictimScanMax + 10;
  const auto policy = Make("lru", kEntries);
  for (EntryId id = 0; id < kEntries; ++id) policy->Insert(0, id, {});
  int asked = 0;
  EXPECT_EQ(policy->Victim([&asked](EntryId id) { return ++asked, id == kEntries - 1; }), std::nullopt);
  EXPECT_EQ(asked, kVictimScanMax);
}

// What every policy of a node owes its caller, whatever it prefers.
class AnyPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, AnyPolicy, ::testing::Values("slru", "lru", "cistern"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(AnyPolicy, DropsAChainFromItsEnd) {
  const auto policy = Make(GetParam());
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  InsertChain(*policy, policy->Begin({.tick = 0, .here = {}, .missing = keys}), 0, 9);
  const std::vector<EntryId> here = {0, 1, 2, 3, 4};
  const UseId again = policy->Begin({.tick = 9, .here = here, .missing = {}});
  for (EntryId depth = 5; depth-- > 0;) policy->Touch(again, depth, depth);
  for (EntryId depth = 9; depth-- > 0;) {
    ASSERT_EQ(policy->Victim(kAny), depth);
    policy->Evicted(depth, depth + 1);
  }
  EXPECT_EQ(policy->Victim(kAny), std::nullopt);
}

TEST_P(AnyPolicy, KeepsAParentWhoseChildrenCameInAnotherCall) {
  const auto policy = Make(GetParam());
  InsertChain(*policy, policy->Begin({}), 0, 3);
  const std::vector<EntryId> here = {0, 1, 2};
  const std::vector<uint64_t> missing = {4, 5, 6};
  const UseId plan = policy->Begin({.tick = 5, .here = here, .missing = missing});
  for (EntryId depth = 3; depth-- > 0;) policy->Touch(plan, depth, depth);
  const std::vector<uint64_t> other_key = {11};
  const UseId other = policy->Begin({.tick = 6, .here = {}, .missing = other_key});  // Comes in between.
  policy->Insert(other, 10, {.key = 11});
  InsertChain(*policy, plan, 5, 6);  // What the plan lacked, in three frames.
  InsertChain(*policy, plan, 4, 5);
  InsertChain(*policy, plan, 3, 4);
  for (EntryId depth = 3; depth-- > 0;) policy->Refresh(depth);
  std::vector<EntryId> order;
  while (order.size() < 6) {
    const auto victim = policy->Victim([](EntryId id) { return id != 10; });
    ASSERT_TRUE(victim.has_value());
    policy->Evicted(*victim, *victim + 1);
    order.push_back(*victim);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST_P(AnyPolicy, FindsTheOneThatMayGo) {
  const auto policy = Make(GetParam(), 1000);
  InsertChain(*policy, policy->Begin({}), 0, 1000);
  for (const EntryId free : {0, 500, 999}) {
    EXPECT_EQ(policy->Victim([free](EntryId id) { return id == free; }), free);
  }
  EXPECT_EQ(policy->Victim([](EntryId) { return false; }), std::nullopt);
}

TEST_P(AnyPolicy, AsksAboutNoMoreThanItsBound) {
  constexpr EntryId kEntries = 3 * kVictimScanMax;
  const auto policy = Make(GetParam(), kEntries);
  for (EntryId id = 0; id < kEntries; ++id) policy->Insert(policy->Begin({}), id, {.key = id});
  int asked = 0;
  EXPECT_EQ(policy->Victim([&asked](EntryId) { return ++asked, false; }), std::nullopt);
  EXPECT_LE(asked, kVictimScanMax + 64);  // cistern looks at a sample first.
}

// Slots are taken, given back and taken again in any order, under names of requests good, old and made up.
TEST_P(AnyPolicy, StaysSoundUnderAnySequence) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    constexpr EntryId kSlots = 100;
    Random random(seed);
    const auto policy = Make(GetParam(), kSlots);
    std::vector<bool> here(kSlots);
    size_t count = 0;
    UseId use = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto id = static_cast<EntryId>(random.Below(kSlots));
      const uint64_t what = random.Below(9);
      if (what == 8) {
        std::vector<EntryId> known;
        for (EntryId e = 0; e < random.Below(9); ++e) {
          if (here[e]) known.push_back(e);
        }
        const std::vector<uint64_t> missing(random.Below(5), random.Below(300));
        use = policy->Begin({.tick = static_cast<PolicyTick>(step), .here = known, .missing = missing});
      }
      const UseId under = random.Chance(.2) ? static_cast<UseId>(random.Below(5000)) : use;
      const auto depth = static_cast<uint32_t>(random.Below(20));
      if (!here[id]) {
        policy->Insert(under, id, {.key = random.Below(300), .depth = depth});
        here[id] = true;
        ++count;
      } else if (what < 4) {
        policy->Touch(under, id, depth);
      } else if (what == 4) {
        policy->Refresh(id);
      } else if (what == 5) {
        policy->Erase(id);
        here[id] = false;
        --count;
      }
      if (what >= 6 || count == kSlots) {
        const uint64_t held = random.Below(3);  // A third of the slots, or none.
        const auto may = [held](EntryId e) { return held == 0 || e % 3 != held; };
        const auto victim = policy->Victim(may);
        size_t allowed = 0;
        for (EntryId e = 0; e < kSlots; ++e) allowed += here[e] && may(e) ? 1 : 0;
        ASSERT_EQ(victim.has_value(), allowed > 0);
        if (!victim.has_value()) continue;
        ASSERT_TRUE(here[*victim] && may(*victim));
        policy->Evicted(*victim, random.Below(300));
        here[*victim] = false;
        --count;
      }
    }
    while (const auto victim = policy->Victim(kAny)) {
      ASSERT_TRUE(here[*victim]);
      policy->Evicted(*victim, 1);
      here[*victim] = false;
      --count;
    }
    EXPECT_EQ(count, 0u);
  }
}

// Requests of a random tree of chains: none of its blocks is ever evicted before one that follows it.
TEST_P(AnyPolicy, LeavesNoBlockWithoutItsParents) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TraceIds requests;
    std::vector<uint32_t> parent = {0};  // By block; a request is a path from the root.
    for (int i = 0; i < 2000; ++i) {
      auto tip = static_cast<uint32_t>(
          random.Chance(.6) ? parent.size() - 1 - random.Below(std::min<size_t>(parent.size(), 40))
                            : random.Below(parent.size()));
      for (uint64_t more = random.Below(12); more > 0; --more) {
        parent.push_back(tip);
        tip = static_cast<uint32_t>(parent.size() - 1);
      }
      std::vector<uint32_t> chain;
      for (; tip != 0; tip = parent[tip]) chain.insert(chain.begin(), tip);
      if (!chain.empty()) requests.push_back(chain);
    }
    const ReplayTrace trace = MakeReplayTrace(requests);
    for (const ReplayFlow flow : {ReplayFlow::kPlain, ReplayFlow::kNode}) {
      for (const uint32_t capacity : {20u, 300u}) {
        EXPECT_EQ(ReplayPolicy(GetParam(), trace, capacity, flow)->stranding_evictions, 0u);
      }
    }
  }
}

TEST_P(AnyPolicy, GivesTheSameAnswersTwice) {
  Random random(7);
  TraceIds requests;
  for (uint32_t i = 0; i < 3000; ++i) {
    const auto session = static_cast<uint32_t>(random.Below(200)) * 100;
    requests.emplace_back();
    for (uint32_t b = 0; b < 1 + random.Below(20); ++b) requests.back().push_back(session + b);
  }
  const ReplayTrace trace = MakeReplayTrace(requests);
  const auto once = ReplayPolicy(GetParam(), trace, 500);
  const auto again = ReplayPolicy(GetParam(), trace, 500);
  EXPECT_EQ(once->hit_blocks, again->hit_blocks);
  EXPECT_GT(once->hit_blocks, 0u);
}

// A chain hits as far as all its owners have kept it: where one of them has more of it than slots, to the
// first block that it lacks, whatever the other has free.
TEST(ReplayOnNodes, AChainHitsToTheFirstBlockThatItsOwnerLacks) {
  constexpr uint32_t kBlocks = 64, kNodes = 2;
  OwnerSet owners;
  owners.owners = {{.id = "node-1"}, {.id = "node-2"}};
  const Placement placement(owners);
  std::vector<cistern::Run> runs;
  CutRuns(kBlocks, kRunBlocksCapDefault, runs);
  std::vector<std::vector<uint32_t>> owned(kNodes);
  for (const cistern::Run& run : runs) {
    BlockHash key{};
    StoreLe<uint64_t>(key.bytes.data(), ReplayPool::KeyOf(run.first));
    for (uint32_t i = run.first; i < run.first + run.count; ++i) owned[placement.Owner(key)].push_back(i);
  }
  const std::vector<uint32_t>& fuller = owned[0].size() > owned[1].size() ? owned[0] : owned[1];
  ASSERT_GT(fuller.size(), kBlocks / kNodes) << "an even split shows nothing";
  std::vector<uint32_t> chain(kBlocks);
  std::iota(chain.begin(), chain.end(), 0u);
  const ReplayTrace trace = MakeReplayTrace({chain, chain});
  const auto split = ReplayPolicy("lru", trace, kBlocks, ReplayFlow::kNode, kNodes);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->hit_blocks, fuller[kBlocks / kNodes]);
  const auto whole = ReplayPolicy("lru", trace, kBlocks, ReplayFlow::kNode);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->hit_blocks, kBlocks);
}

TEST(ReplayOnNodes, MoreNodesThanSlotsAreRefused) {
  const ReplayTrace trace = MakeReplayTrace({{1, 2}});
  EXPECT_EQ(ReplayPolicy("lru", trace, 2, ReplayFlow::kNode, 3).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReplayPolicy("lru", trace, 2, ReplayFlow::kNode, 2).ok());
}

}  // namespace
}  // namespace cistern
