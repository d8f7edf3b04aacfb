// What CisternPolicy learns with: ghosts, watches, the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/eviction/ghost_table.h"
#include "core/eviction/reuse_model.h"
#include "core/eviction/watch_list.h"

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
