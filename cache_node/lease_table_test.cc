#include "cache_node/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

using ::testing::ElementsAre;

TEST(LeaseTable, FindsAPlanOnlyForItsPeerAndOnlyUntilItsEnd) {
  LeaseTable leases;
  const auto row = leases.AddPlan(1, 42, {7u, 8u}, 1000);
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(leases.FindPlan(1, 42, 999), row);
  EXPECT_FALSE(leases.FindPlan(2, 42, 999).has_value());
  EXPECT_FALSE(leases.FindPlan(1, 43, 999).has_value());
  EXPECT_FALSE(leases.FindPlan(1, 42, 1000).has_value());
}

TEST(LeaseTable, GivesBackExactlyTheSlotsOfARow) {
  LeaseTable leases;
  leases.AddPlan(1, 1, {7u, 8u, 9u}, 1000);
  leases.AddPlan(1, 2, {9u}, 500);
  EXPECT_EQ(leases.next_end(), 500);
  std::vector<SlotId> slots;
  leases.Remove(*leases.Due(500), slots);
  EXPECT_THAT(slots, ElementsAre(9u));
  EXPECT_FALSE(leases.Due(999).has_value());
  leases.Remove(*leases.Due(1000), slots);
  EXPECT_THAT(slots, ElementsAre(7u, 8u, 9u));
  EXPECT_EQ(leases.next_end(), kNever);
  EXPECT_EQ(leases.plans(), 0u);
}

TEST(LeaseTable, RenewalMovesTheEndButNeverCloser) {
  LeaseTable leases;
  const auto row = leases.AddPlan(1, 1, {7u}, 1000);
  leases.Renew(*row, 3000);
  EXPECT_EQ(leases.next_end(), 3000);
  leases.Renew(*row, 2000);
  EXPECT_EQ(leases.next_end(), 3000);
}

TEST(LeaseTable, RefusesASecondPlanOfTheSameIdAndMoreThanAPeersShare) {
  LeaseTable leases;
  ASSERT_TRUE(leases.AddPlan(1, 1, {7u}, 1000).has_value());
  EXPECT_FALSE(leases.AddPlan(1, 1, {8u}, 1000).has_value());
  EXPECT_TRUE(leases.AddPlan(2, 1, {8u}, 1000).has_value()) << "ids are the peer's own";
  for (uint64_t id = 2; id <= kPlansPerPeerMax; ++id)
    ASSERT_TRUE(leases.AddPlan(1, id, {1u}, 1000).has_value());
  EXPECT_FALSE(leases.HasRoom(1));
  EXPECT_EQ(leases.AddHold(1, {1u}, 1000), 0u);
  EXPECT_TRUE(leases.HasRoom(2));
}

TEST(LeaseTable, RefusesWhatIsAboveTheTablesOwnBound) {
  LeaseTable leases;
  uint32_t added = 0;
  for (PeerId peer = 1; peer <= kShardPlansMax / kPlansPerPeerMax + 1; ++peer) {
    for (uint64_t id = 1; id <= kPlansPerPeerMax; ++id)
      added += leases.AddPlan(peer, id, {1u}, 1000).has_value();
  }
  EXPECT_EQ(added, kShardPlansMax);
}

TEST(LeaseTable, AHoldIsFoundByItsCookieOnceAndNotByThatOfAnEarlierOne) {
  LeaseTable leases;
  const uint64_t first = leases.AddHold(1, {7u}, 1000);
  ASSERT_NE(first, 0u);
  std::vector<SlotId> slots;
  leases.Remove(*leases.FindHold(first), slots);
  const uint64_t second = leases.AddHold(1, {8u}, 1000);
  EXPECT_FALSE(leases.FindHold(first).has_value());
  EXPECT_TRUE(leases.FindHold(second).has_value());
  EXPECT_FALSE(leases.FindHold(0).has_value());
  EXPECT_FALSE(leases.FindHold(UINT64_MAX).has_value());
}

TEST(LeaseTable, ListsAllRowsOfAPeerAndNoOthers) {
  LeaseTable leases;
  for (uint64_t id = 1; id <= 5; ++id) {
    leases.AddPlan(1, id, {1u}, 1000);
    leases.AddPlan(2, id, {2u}, 1000);
  }
  leases.AddHold(1, {3u}, 1000);
  std::vector<SlotId> slots;
  int of_first = 0;
  while (const auto row = leases.AnyOf(1)) {
    EXPECT_EQ(leases.row(*row).peer, 1u);
    leases.Remove(*row, slots);
    ++of_first;
  }
  EXPECT_EQ(of_first, 6);
  EXPECT_EQ(leases.plans(), 5u);
  EXPECT_EQ(leases.holds(), 0u);
}

}  // namespace
}  // namespace cistern
