#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/eviction/ghost_ring.h"
#include "core/eviction/replay.h"
#include "core/eviction/reuse_model.h"
#include "core/eviction_policy.h"
#include "core/random.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<EvictionPolicy> Make(std::string_view name, uint32_t capacity = 16) {
  return *MakeEvictionPolicy(name, capacity);
}
const auto kAny = [](EntryId) { return true; };

TEST(EvictionPolicy, NamesThoseThereAreWhenAskedForAnother) {
  const absl::Status status = MakeEvictionPolicy("clairvoyant", 16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lru"));
}

TEST(LruPolicy, DropsWhatWasUsedLongestAgo) {
  const auto policy = Make("lru");
  for (EntryId id : {0, 1, 2}) policy->Insert(id, id, 0);
  policy->Touch(0);
  EXPECT_EQ(policy->Victim(kAny), 1u);
  policy->Evicted(1);
  EXPECT_EQ(policy->Victim(kAny), 2u);
  policy->Erase(2);
  EXPECT_EQ(policy->Victim(kAny), 0u);
  policy->Evicted(0);
  EXPECT_EQ(policy->Victim(kAny), std::nullopt);
}

TEST(LruPolicy, PassesOverWhatMayNotGo) {
  const auto policy = Make("lru");
  for (EntryId id : {0, 1, 2}) policy->Insert(id, id, 0);
  EXPECT_EQ(policy->Victim([](EntryId id) { return id == 2; }), 2u);
  EXPECT_EQ(policy->Victim([](EntryId) { return false; }), std::nullopt);
}

TEST(LruPolicy, LooksAtNoMoreThanItsBound) {
  constexpr EntryId kEntries = kVictimScanMax + 10;
  const auto policy = Make("lru", kEntries);
  for (EntryId id = 0; id < kEntries; ++id) policy->Insert(id, id, 0);
  int asked = 0;
  EXPECT_EQ(policy->Victim([&asked](EntryId id) { return ++asked, id == kEntries - 1; }), std::nullopt);
  EXPECT_EQ(asked, kVictimScanMax);
}

// Three slots, worked out by hand: chains 1-2, 1-3, 4, 1-2.
TEST(ReplayPolicy, CountsPrefixConsistentHits) {
  const TraceIds requests = {{1, 2}, {1, 3}, {4}, {1, 2}, {1, 2}};
  const auto score = ReplayPolicy("lru", requests, 3);
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->blocks, 9u);
  EXPECT_EQ(score->hit_blocks, 1u + 0 + 1 + 2);  // 2 was the oldest when 4 came.
  EXPECT_EQ(score->stranding_evictions, 0u);
  EXPECT_EQ(CountUnique(requests), 4u);
}

// What every policy owes its caller, whatever it prefers.
class AnyPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, AnyPolicy, ::testing::Values("lru", "hazard"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(AnyPolicy, DropsAChainFromItsEnd) {
  const auto policy = Make(GetParam());
  for (EntryId depth = 9; depth-- > 0;) policy->Insert(depth, depth, depth);
  for (EntryId depth = 5; depth-- > 0;) policy->Touch(depth);
  for (EntryId depth = 9; depth-- > 0;) {
    ASSERT_EQ(policy->Victim(kAny), depth);
    policy->Evicted(depth);
  }
  EXPECT_EQ(policy->Victim(kAny), std::nullopt);
}

TEST_P(AnyPolicy, KeepsAParentWhoseChildrenCameInAnotherCall) {
  const auto policy = Make(GetParam());
  for (EntryId depth = 3; depth-- > 0;) policy->Insert(depth, depth, depth);
  for (EntryId depth = 3; depth-- > 0;) policy->Touch(depth);  // A plan, whose tail is stored later.
  for (EntryId depth = 6; depth-- > 3;) policy->Insert(depth, depth, depth);
  for (EntryId depth = 3; depth-- > 0;) policy->Refresh(depth);
  policy->Insert(10, 10, 0);  // Another request.
  policy->Touch(10);
  std::vector<EntryId> order;
  while (order.size() < 6) {
    const auto victim = policy->Victim([](EntryId id) { return id != 10; });
    ASSERT_TRUE(victim.has_value());
    policy->Evicted(*victim);
    order.push_back(*victim);
  }
  EXPECT_THAT(order, ::testing::ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST_P(AnyPolicy, FindsTheOneThatMayGo) {
  const auto policy = Make(GetParam(), 1000);
  for (EntryId depth = 1000; depth-- > 0;) policy->Insert(depth, depth, depth);
  for (const EntryId free : {0, 500, 999}) {
    EXPECT_EQ(policy->Victim([free](EntryId id) { return id == free; }), free);
  }
  EXPECT_EQ(policy->Victim([](EntryId) { return false; }), std::nullopt);
}

TEST_P(AnyPolicy, AsksAboutNoMoreThanItsBound) {
  constexpr EntryId kEntries = 3 * kVictimScanMax;
  const auto policy = Make(GetParam(), kEntries);
  for (EntryId id = 0; id < kEntries; ++id) policy->Insert(id, id, id % 7);
  int asked = 0;
  EXPECT_EQ(policy->Victim([&asked](EntryId) { return ++asked, false; }), std::nullopt);
  EXPECT_LE(asked, kVictimScanMax + 64);  // hazard looks at a sample first.
}

TEST_P(AnyPolicy, StaysSoundUnderAnySequence) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    constexpr EntryId kSlots = 100;
    Random random(seed);
    const auto policy = Make(GetParam(), kSlots);
    std::vector<bool> here(kSlots);
    size_t count = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto id = static_cast<EntryId>(random.Below(kSlots));
      const uint64_t what = random.Below(8);
      if (!here[id]) {
        policy->Insert(id, random.Below(300), static_cast<uint32_t>(random.Below(20)));
        here[id] = true;
        ++count;
      } else if (what < 4) {
        policy->Touch(id);
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
        policy->Evicted(*victim);
        here[*victim] = false;
        --count;
      }
    }
    while (const auto victim = policy->Victim(kAny)) {
      ASSERT_TRUE(here[*victim]);
      policy->Evicted(*victim);
      here[*victim] = false;
      --count;
    }
    EXPECT_EQ(count, 0u);
  }
}

// Thirty conversations go on in turn while a stream of prompts passes that nobody asks for again.
TEST(HazardPolicy, KeepsWhatComesBackThroughAStreamOfOneTimePrompts) {
  TraceIds requests;
  uint32_t next = 1'000;
  for (uint32_t round = 0; round < 200; ++round) {
    for (uint32_t talk = 0; talk < 30; ++talk) {
      requests.push_back({talk * 10, talk * 10 + 1, talk * 10 + 2});
      requests.push_back({next, next + 1, next + 2, next + 3});
      next += 4;
    }
  }
  constexpr uint32_t kCapacity =
      120;  // The conversations and a little; what passes between two turns is 200.
  for (const ReplayFlow flow : {ReplayFlow::kPlain, ReplayFlow::kNode}) {
    EXPECT_EQ(ReplayPolicy("lru", requests, kCapacity, flow)->hit_blocks, 0u);
    EXPECT_GT(ReplayPolicy("hazard", requests, kCapacity, flow)->HitRatio(),
              0.35);  // 3 of 7 blocks come back.
  }
}

struct BaselineRow {
  const char* trace;
  // LRU at 1, 5 and 20 % of the unique blocks, from an independent simulator.
  double lru_1, lru_5, lru_20;
  double hazard_1;  // Clearly above it where memory is scarcest.
};
constexpr BaselineRow kBaselines[] = {{kConversationTrace, .0525, .1958, .3453, .09},
                                      {kSyntheticTrace, .0381, .1566, .3931, .0361},
                                      {kAgenticTrace, .3802, .9209, .9625, .42}};

TEST(LruPolicy, HasTheKnownHitRatiosOnThePublicTraces) {
  for (const BaselineRow& row : kBaselines) {
    const std::string path = TraceFile(row.trace);
    if (path.empty()) GTEST_SKIP() << row.trace << " is absent";
    const TraceIds requests = ReadTraceIds(path);
    const double ratio = ReplayPolicy("lru", requests, CountUnique(requests) / 20)->HitRatio();
    EXPECT_EQ(std::round(ratio * 1e4), std::round(row.lru_5 * 1e4)) << row.trace << ' ' << ratio;
  }
}

TEST(HazardPolicy, IsNowhereBelowLruAndFarAboveWhereMemoryIsScarce) {
  constexpr double kSlack = .002;
  for (const BaselineRow& row : kBaselines) {
    const std::string path = TraceFile(row.trace);
    if (path.empty()) GTEST_SKIP() << row.trace << " is absent";
    const TraceIds requests = ReadTraceIds(path);
    const uint32_t unique = CountUnique(requests);
    for (const ReplayFlow flow : {ReplayFlow::kPlain, ReplayFlow::kNode}) {
      SCOPED_TRACE(std::string(row.trace) + (flow == ReplayFlow::kNode ? ", node" : ", plain"));
      const auto ratio = [&](uint32_t capacity) {
        return ReplayPolicy("hazard", requests, capacity, flow)->HitRatio();
      };
      EXPECT_GE(ratio(unique / 100), row.hazard_1);
      EXPECT_GE(ratio(unique / 20), row.lru_5 - kSlack);
      EXPECT_GE(ratio(unique / 5), row.lru_20 - kSlack);
    }
  }
}

TEST(GhostRing, ForgetsTheOldestWhenFull) {
  GhostRing ring(3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(ring.Push(i * 64, i), std::nullopt);
  EXPECT_EQ(ring.Take(64), 1u);
  EXPECT_EQ(ring.Take(64), std::nullopt);
  EXPECT_EQ(ring.Push(3 * 64, 3), 0u);            // 0 was the oldest.
  EXPECT_EQ(ring.Push(4 * 64, 4), std::nullopt);  // 1's place was empty.
  EXPECT_EQ(ring.Take(0), std::nullopt);
  EXPECT_EQ(ring.Take(2 * 64), 2u);
  EXPECT_EQ(ring.Take(3 * 64), 3u);
  EXPECT_EQ(ring.live(), 1u);
}

TEST(GhostRing, KeepsTwoRunsOfOneKeyApart) {
  GhostRing ring(1000);
  for (uint32_t i = 0; i < 500; ++i) ring.Push(i % 250, i);
  for (uint32_t i = 0; i < 250; ++i) {
    EXPECT_EQ(ring.Take(i), 250 + i);
    EXPECT_EQ(ring.Take(i), i);
  }
  EXPECT_EQ(ring.live(), 0u);
}

TEST(ReuseModel, HasBinsThatGrowByTheSquareRootOfTwo) {
  for (int bin = 1; bin < ReuseModel::kBins; ++bin) {
    ASSERT_GT(ReuseModel::BinStart(bin), ReuseModel::BinStart(bin - 1));
    if (bin > 4) {
      ASSERT_LE(ReuseModel::BinStart(bin), ReuseModel::BinStart(bin - 1) * 3 / 2 + 1);
    }
  }
  EXPECT_EQ(ReuseModel::BinStart(8), 16u);
  EXPECT_EQ(ReuseModel::BinStart(9), 24u);
}

// One block of class 1 comes back every 16 requests, one of class 0 never does.
TEST(ReuseModel, ValuesWhatIsAboutToComeBack) {
  ReuseModel model;
  for (int round = 0; round < 300; ++round) {
    int bin = 0;
    model.Watch(0, ReuseModel::kBins - 1, 1);
    model.Watch(1, 0, 1);
    for (uint64_t age = 1; age <= 16; ++age) {
      model.Tick();
      if (age < ReuseModel::BinStart(bin + 1)) continue;
      model.Unwatch(1, bin, 1);
      model.Watch(1, ++bin, 1);
    }
    model.CameBack(1, bin, 1);
    model.Unwatch(0, ReuseModel::kBins - 1, 1);
  }
  EXPECT_GT(model.Worth(1, 7), 1.5 * model.Worth(1, 0));  // At age 12 it is nearly back.
  EXPECT_GT(model.Worth(1, 0), 10 * model.Worth(0, ReuseModel::kBins - 1));
}

}  // namespace
}  // namespace cistern
