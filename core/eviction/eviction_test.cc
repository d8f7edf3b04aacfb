#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/eviction/replay.h"
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

TEST(LruPolicy, DropsAChainFromItsEnd) {
  const auto policy = Make("lru");
  for (EntryId depth = 5; depth-- > 0;) policy->Insert(depth, depth, depth);
  for (EntryId depth = 5; depth-- > 0;) {
    EXPECT_EQ(policy->Victim(kAny), depth);
    policy->Evicted(depth);
  }
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

struct BaselineRow {
  const char* trace;
  double ratio;  // LRU at 5 % of the unique blocks, from an independent simulator.
};

TEST(LruPolicy, HasTheKnownHitRatiosOnThePublicTraces) {
  for (const BaselineRow& row : {BaselineRow{kConversationTrace, .1958}, BaselineRow{kSyntheticTrace, .1566},
                                 BaselineRow{kAgenticTrace, .9209}}) {
    const std::string path = TraceFile(row.trace);
    if (path.empty()) GTEST_SKIP() << row.trace << " is absent";
    const TraceIds requests = ReadTraceIds(path);
    const auto score = ReplayPolicy("lru", requests, CountUnique(requests) / 20);
    ASSERT_TRUE(score.ok());
    EXPECT_EQ(std::round(score->HitRatio() * 1e4), std::round(row.ratio * 1e4))
        << row.trace << ' ' << score->HitRatio();
    EXPECT_EQ(score->stranding_evictions, 0u) << row.trace;
  }
}

}  // namespace
}  // namespace cistern
