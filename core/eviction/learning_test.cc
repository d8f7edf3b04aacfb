// What policies learn with: ghosts, watches, the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "core/eviction/ghost_queue.h"
#include "core/eviction/ghost_table.h"
#include "core/eviction/reuse_model.h"
#include "core/eviction/watch_list.h"
#include "core/random.h"

namespace cistern {
namespace {

TEST(GhostTable, FindsWhatItWasToldOnce) {
  GhostTable ghosts(1000);
  EXPECT_EQ(ghosts.Take(5), 0u);
  EXPECT_EQ(ghosts.Push(5, 7), 0u);
  EXPECT_EQ(ghosts.Take(5), 7u);
  EXPECT_EQ(ghosts.Take(5), 0u);
}

TEST(GhostTable, ForgetsTheOldestOfALine) {
  GhostTable ghosts(8);
  for (uint64_t key = 1; key <= 8; ++key) EXPECT_EQ(ghosts.Push(key, static_cast<uint32_t>(key)), 0u);
  EXPECT_EQ(ghosts.Push(9, 9), 1u);
  EXPECT_EQ(ghosts.Take(1), 0u);
  EXPECT_EQ(ghosts.Take(5), 5u);
  EXPECT_EQ(ghosts.Push(10, 10), 0u);  // 5's place.
  EXPECT_EQ(ghosts.Push(11, 11), 2u);
}

TEST(GhostTable, KeepsItsBound) {
  GhostTable ghosts(10'000);
  EXPECT_LE(ghosts.capacity(), 10'000u);
  uint64_t live = 0;
  for (uint64_t key = 0; key < 100'000; ++key) live += ghosts.Push(key, 1) == 0 ? 1 : 0;
  EXPECT_LE(live, ghosts.capacity());
  EXPECT_LE(ghosts.memory_bytes(), ghosts.capacity() * 8);
  uint64_t found = 0;
  for (uint64_t key = 0; key < 100'000; ++key) found += ghosts.Take(key);
  EXPECT_EQ(found, live);
}

TEST(GhostQueue, ForgetsTheOldestOfAll) {
  GhostQueue ghosts(3);
  for (uint32_t key = 1; key <= 3; ++key) EXPECT_EQ(ghosts.Push(key, key * 10), 0u);
  EXPECT_EQ(ghosts.Push(4, 40), 10u);
  EXPECT_FALSE(ghosts.Has(1));
  EXPECT_TRUE(ghosts.Has(2));
  EXPECT_EQ(ghosts.Take(2), 20u);
  EXPECT_EQ(ghosts.Take(2), 0u);
  EXPECT_EQ(ghosts.Push(5, 50), 0u);  // 2's place, which was next.
  EXPECT_EQ(ghosts.Push(6, 60), 30u);
}

// Against a list of what was pushed last.
TEST(GhostQueue, KnowsWhatWasPushedLastAndNotTakenSince) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto capacity = static_cast<uint32_t>(1 + random.Below(60));
    GhostQueue ghosts(capacity);
    std::deque<std::pair<uint64_t, uint32_t>> model;  // Oldest first; value 0: taken.
    for (uint32_t step = 1; step < 5000; ++step) {
      const uint64_t key = random.Below(100);
      const auto known = std::find_if(model.begin(), model.end(),
                                      [key](const auto& m) { return m.first == key && m.second != 0; });
      ASSERT_EQ(ghosts.Has(key), known != model.end());
      if (known != model.end()) {
        ASSERT_EQ(ghosts.Take(key), known->second);
        known->second = 0;
      } else if (random.Chance(.7)) {
        uint32_t pushed_out = 0;
        if (model.size() == capacity) pushed_out = model.front().second, model.pop_front();
        ASSERT_EQ(ghosts.Push(key, step), pushed_out);
        model.emplace_back(key, step);
      }
    }
    EXPECT_LE(ghosts.memory_bytes(), uint64_t{capacity} * 16);
  }
}

TEST(ReuseModel, HasBinsThatGrowByTheSquareRootOfTwo) {
  for (int bin = 1; bin < ReuseModel::kBins; ++bin) {
    ASSERT_GT(ReuseModel::BinStart(bin), ReuseModel::BinStart(bin - 1));
    if (bin > 4) {
      ASSERT_LE(ReuseModel::BinStart(bin), ReuseModel::BinStart(bin - 1) * 3 / 2 + 1);
    }
    ASSERT_EQ(ReuseModel::BinOf(static_cast<PolicyTick>(ReuseModel::BinStart(bin))), bin);
    ASSERT_EQ(ReuseModel::BinOf(static_cast<PolicyTick>(ReuseModel::BinStart(bin) - 1)), bin - 1);
  }
  EXPECT_EQ(ReuseModel::BinOf(UINT32_MAX), ReuseModel::kBins - 1);
}

// Requests of turn 3 come back after 1,000 ticks, those of turn 0 never do.
TEST(ReuseModel, ValuesWhatIsAboutToComeBack) {
  ReuseModel model;
  WatchList watches(model);
  const int back = ReuseModel::BodyClass(3, 20, 4), gone = ReuseModel::BodyClass(0, 20, 4);
  std::vector<WatchId> waiting;
  PolicyTick now = 0;
  for (int round = 0; round < 400; ++round, now += 100) {
    for (const int cls : {back, gone}) {
      const WatchId id = watches.Open(cls, now, 1);
      ASSERT_TRUE(watches.TryJoin(id, now));
      watches.Release(id);
      if (cls == back) waiting.push_back(id);
    }
    if (round >= 10) watches.CameBack(waiting[static_cast<size_t>(round) - 10], now);
    watches.Advance(now);
    model.Update(now, .98f, 2);
  }
  EXPECT_GT(model.Worth(back, 800), 2 * model.Worth(back, 10));  // Nearly there.
  EXPECT_GT(model.Worth(back, 10), 4 * model.Worth(gone, 10));
  EXPECT_GT(model.Worth(gone, 10), 0);
}

TEST(WatchList, GivesBackARunWithItsLastBlock) {
  ReuseModel model;
  WatchList watches(model);
  const WatchId id = watches.Open(ReuseModel::kTrunk, 0, 2);
  EXPECT_TRUE(watches.TryJoin(id, 0));
  EXPECT_TRUE(watches.TryJoin(id, 0));
  EXPECT_FALSE(watches.TryJoin(id, 0));
  watches.Release(id);
  watches.CameBack(id, 1000);
  EXPECT_EQ(watches.live(), 1u);
  watches.Lose(id, 1000);
  EXPECT_EQ(watches.live(), 0u);
  EXPECT_EQ(watches.Open(ReuseModel::kLast, 0, 1), id);  // Its place is taken again.
}

TEST(WatchList, RefusesWhenFull) {
  ReuseModel model;
  WatchList watches(model);
  for (uint32_t i = 0; i < WatchList::kWatchesMax; ++i) ASSERT_NE(watches.Open(ReuseModel::kLast, i, 1), 0u);
  EXPECT_EQ(watches.Open(ReuseModel::kLast, 0, 1), 0u);
}

}  // namespace
}  // namespace cistern
