#include "cache_node/disk/disk_tails.h"

#include <gtest/gtest.h>

#include <set>

namespace cistern {
namespace {

BlockHash Block(uint8_t name) {
  BlockHash hash;
  hash.bytes.fill(name);
  return hash;
}

class DiskTailsTest : public ::testing::Test {
 protected:
  const DiskTails::Tail* Find(uint8_t name) {
    return tails.Find(Block(name), [this](PartCoord coord) {
      ++asked;
      return there.contains(coord.span);
    });
  }
  void Add(uint8_t name, uint16_t span) { tails.Add(Block(name), {.span = span}, {.parts = 2}); }

  Random random{1};
  DiskTails tails{random};
  std::set<uint16_t> there{1, 2};
  int asked = 0;
};

TEST_F(DiskTailsTest, KnowWhatEachHasUntilItsLastPartGoes) {
  EXPECT_EQ(Find(7), nullptr);
  Add(7, 1);
  Add(7, 1);
  Add(7, 2);
  ASSERT_NE(Find(7), nullptr);
  EXPECT_EQ(Find(7)->wanted, 2u);
  EXPECT_EQ(Find(7)->coords.size(), 2u);
  tails.Erase(Block(7), {.span = 3});
  tails.Erase(Block(7), {.span = 1});
  EXPECT_FALSE(Find(7)->Has({.span = 1}));
  EXPECT_TRUE(Find(7)->Has({.span = 2}));
  tails.Erase(Block(7), {.span = 2});
  EXPECT_TRUE(tails.empty());
  EXPECT_EQ(asked, 0) << "there was no doubt";
}

TEST_F(DiskTailsTest, InDoubtEachIsLookedThroughOnceWhenItIsAskedFor) {
  Add(7, 1);
  Add(7, 2);
  Add(8, 1);
  there = {2};
  tails.Doubt();
  Add(9, 2);
  EXPECT_EQ(Find(9)->coords.size(), 1u);
  EXPECT_EQ(asked, 0) << "what came afterwards is there";
  EXPECT_EQ(Find(7)->coords.size(), 1u);
  EXPECT_TRUE(Find(7)->Has({.span = 2}));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(Find(8), nullptr);
  Add(7, 1);
  EXPECT_EQ(Find(7)->coords.size(), 2u);
  EXPECT_EQ(asked, 3);
}

// What comes to a tail in doubt does not vouch for the rest of it.
TEST_F(DiskTailsTest, ANewPartLeavesTheDoubt) {
  Add(7, 1);
  there = {2};
  tails.Doubt();
  Add(7, 2);
  EXPECT_EQ(Find(7)->coords.size(), 1u);
}

}  // namespace
}  // namespace cistern
