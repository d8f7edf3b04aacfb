#include "cache_node/put_table.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

TEST(PutTable, AnIdWorksOnceAndOnlyForItsPeer) {
  Random random(3);
  PutTable puts(random);
  const uint64_t id = puts.Add({.peer = 1, .slot = 9, .length = 10, .deadline = 100});
  ASSERT_TRUE(puts.Find(1, id).has_value());
  EXPECT_FALSE(puts.Find(2, id).has_value());
  EXPECT_FALSE(puts.Find(1, id ^ (uint64_t{1} << 40)).has_value());
  puts.Remove(*puts.Find(1, id));
  EXPECT_FALSE(puts.Find(1, id).has_value());
  const uint64_t next = puts.Add({.peer = 1, .slot = 9, .length = 10, .deadline = 100});
  EXPECT_NE(next, id) << "the same row again, under another id";
  EXPECT_FALSE(puts.Find(1, id).has_value());
}

TEST(PutTable, TellsWhatIsDueInOrderOfDeadlines) {
  Random random(3);
  PutTable puts(random);
  const uint64_t late = puts.Add({.peer = 1, .slot = 1, .deadline = 200});
  const uint64_t soon = puts.Add({.peer = 1, .slot = 2, .deadline = 100});
  EXPECT_EQ(puts.next_deadline(), 100);
  EXPECT_FALSE(puts.Due(99).has_value());
  EXPECT_EQ(puts.Due(100), puts.Find(1, soon));
  puts.Remove(*puts.Due(100));
  EXPECT_FALSE(puts.Due(100).has_value());
  puts.Move(*puts.Find(1, late), 300);
  EXPECT_FALSE(puts.Due(200).has_value());
  EXPECT_EQ(puts.Due(300), puts.Find(1, late));
}

TEST(PutTable, BoundsWhatOnePeerAndAllPeersMayReserve) {
  Random random(3);
  PutTable puts(random);
  for (uint32_t i = 0; i < kPutsPerPeerMax; ++i) puts.Add({.peer = 1, .slot = i, .deadline = 1});
  EXPECT_FALSE(puts.HasRoom(1));
  for (uint32_t i = 0; i < kPutsMax - kPutsPerPeerMax; ++i) puts.Add({.peer = 2, .slot = i, .deadline = 1});
  EXPECT_FALSE(puts.HasRoom(3));
  while (const auto row = puts.AnyOf(1)) puts.Remove(*row);
  EXPECT_TRUE(puts.HasRoom(1));
  EXPECT_EQ(puts.size(), kPutsMax - kPutsPerPeerMax);
}

}  // namespace
}  // namespace cistern
