#include "cache_node/wait_groups.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

using Slots = std::vector<SlotId>;

TEST(WaitGroups, IsReadyWhenClosedAndAllHaveCome) {
  WaitGroups groups(8);
  const uint64_t id = groups.Open();
  groups.Add(id);
  groups.End(id, 3);
  EXPECT_FALSE(groups.HasReady()) << "more may be asked for";
  groups.Add(id);
  groups.Hold(id, 9);
  groups.Close(id);
  EXPECT_FALSE(groups.HasReady()) << "one is still to come";
  groups.End(id, kNoSlot);
  uint64_t taken = 0;
  Slots held;
  ASSERT_TRUE(groups.TakeReady(taken, held));
  EXPECT_EQ(taken, id);
  EXPECT_EQ(held, (Slots{3, 9}));
  EXPECT_EQ(groups.open(), 0u);
  EXPECT_FALSE(groups.TakeReady(taken, held));
}

TEST(WaitGroups, WithoutPartsIsReadyAtOnce) {
  WaitGroups groups(8);
  groups.Close(groups.Open());
  uint64_t taken = 0;
  Slots held{1};
  ASSERT_TRUE(groups.TakeReady(taken, held));
  EXPECT_TRUE(held.empty());
}

TEST(WaitGroups, AreTakenInTheOrderInWhichTheyBecameReady) {
  WaitGroups groups(8);
  const uint64_t first = groups.Open(), second = groups.Open();
  for (const uint64_t id : {first, second}) groups.Add(id), groups.Close(id);
  groups.End(second, 2);
  groups.End(first, 1);
  uint64_t taken = 0;
  Slots held;
  ASSERT_TRUE(groups.TakeReady(taken, held));
  EXPECT_EQ(taken, second);
  EXPECT_EQ(held, Slots{2});
  ASSERT_TRUE(groups.TakeReady(taken, held));
  EXPECT_EQ(taken, first);
}

TEST(WaitGroups, AreBoundedAndOnesThatWaitToBeTakenCount) {
  WaitGroups groups(2);
  const uint64_t first = groups.Open();
  EXPECT_NE(groups.Open(), 0u);
  EXPECT_EQ(groups.Open(), 0u);
  groups.Close(first);
  EXPECT_EQ(groups.Open(), 0u);
  uint64_t taken = 0;
  Slots held;
  ASSERT_TRUE(groups.TakeReady(taken, held));
  const uint64_t third = groups.Open();
  EXPECT_NE(third, 0u);
  EXPECT_NE(third, first) << "a number is used once";
}

}  // namespace
}  // namespace cistern
