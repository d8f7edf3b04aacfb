#include "cache_node/tail_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

BlockHash Block(uint8_t name) {
  BlockHash hash;
  hash.bytes.fill(name);
  return hash;
}

TEST(TailTable, IsWholeWithItsLastPartOnly) {
  Random random(1);
  TailTable tails(random);
  EXPECT_FALSE(tails.IsWhole(Block(1)));
  EXPECT_TRUE(tails.Add(Block(1), 7, 2, false));
  EXPECT_FALSE(tails.IsWhole(Block(1)));
  EXPECT_TRUE(tails.Add(Block(1), 9, 2, false));
  EXPECT_TRUE(tails.IsWhole(Block(1)));
  EXPECT_FALSE(tails.IsWhole(Block(2)));
  EXPECT_THAT(tails.Take(Block(1)), ElementsAre(7, 9));
  EXPECT_FALSE(tails.IsWhole(Block(1)));
  EXPECT_TRUE(tails.empty());
}

TEST(TailTable, RefusesPartsThatDoNotFit) {
  Random random(1);
  TailTable tails(random);
  EXPECT_TRUE(tails.Add(Block(1), 7, 2, false));
  EXPECT_FALSE(tails.Add(Block(1), 8, 3, false)) << "another number of parts";
  EXPECT_TRUE(tails.Add(Block(1), 8, 2, false));
  EXPECT_FALSE(tails.Add(Block(1), 9, 2, false)) << "one too many";
  EXPECT_THAT(tails.Take(Block(1)), ElementsAre(7, 8));
}

TEST(TailTable, ANewerTailOfTheSameChainReplacesTheOlderUnlessPromptsPartThere) {
  Random random(1);
  TailTable tails(random);
  tails.Add(Block(1), 7, 1, false);
  EXPECT_THAT(tails.Supersede(Block(1), 100), ElementsAre(7));
  EXPECT_THAT(tails.Supersede(Block(1), 100), ElementsAre(7)) << "the same way on";
  EXPECT_THAT(tails.Supersede(Block(1), 200), ElementsAre()) << "two ways on: a junction";
  EXPECT_THAT(tails.Supersede(Block(1), 100), ElementsAre());
  EXPECT_TRUE(tails.Find(Block(1))->junction);
  tails.Add(Block(2), 8, 1, /*junction=*/true);
  EXPECT_THAT(tails.Supersede(Block(2), 100), ElementsAre());
  EXPECT_THAT(tails.Supersede(Block(3), 100), ElementsAre());
}

}  // namespace
}  // namespace cistern
