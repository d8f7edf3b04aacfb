#include "core/breakpoints.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Breakpoints, AreFourAtMostAscendingAndInsideThePrompt) {
  const auto why = [](std::vector<uint64_t> points) {
    return std::string(CheckBreakpoints(points, 1000).message());
  };
  EXPECT_EQ(why({}), "");
  EXPECT_EQ(why({1, 2, 500, 1000}), "");
  EXPECT_THAT(why({1, 2, 3, 4, 5}), HasSubstr("5 in one request, at most 4"));
  EXPECT_THAT(why({0}), HasSubstr("breakpoints[0]: 0"));
  EXPECT_THAT(why({5, 5}), HasSubstr("breakpoints[1]: 5 is not in (5, 1000]"));
  EXPECT_THAT(why({1001}), HasSubstr("breakpoints[0]: 1001"));
}

TEST(Breakpoints, BecomeMarksAtWholeBlocks) {
  EXPECT_THAT(CommitMarks(std::vector<uint64_t>{10, 70, 100, 1000}, 1000, 64), ElementsAre(64, 960));
  EXPECT_THAT(CommitMarks({}, 1000, 64), ElementsAre(960)) << "the newest end";
  EXPECT_THAT(CommitMarks({}, 63, 64), IsEmpty());
}

TEST(Breakpoints, AreLookedBackFromBlockByBlock) {
  const auto reached = [](std::vector<uint64_t> marks, uint64_t blocks) {
    std::set<uint64_t> out;  // Boundaries, in blocks.
    const std::vector<uint64_t> bits = LookBack(marks, 16, blocks);
    for (uint64_t i = 0; i < blocks; ++i) {
      if (bits[i / 64] >> (i % 64) & 1) out.insert(i + 1);
    }
    return out;
  };
  EXPECT_THAT(reached({}, 100), IsEmpty());
  const std::set<uint64_t> one = reached({16 * 70 + 5}, 100);
  EXPECT_EQ(one.size(), 21u) << "the mark's last whole block, and 20 blocks back";
  EXPECT_EQ(*one.begin(), 50u);
  EXPECT_EQ(*one.rbegin(), 70u);
  EXPECT_THAT(reached({32}, 100), ElementsAre(1, 2)) << "not before the prompt";
  const std::set<uint64_t> two = reached({16 * 30, 16 * 90}, 100);
  EXPECT_EQ(two.size(), 42u);
  EXPECT_TRUE(two.contains(10) && two.contains(30) && two.contains(70) && two.contains(90));
  EXPECT_FALSE(two.contains(9) || two.contains(31) || two.contains(69));
  EXPECT_EQ(*reached({16 * 90}, 64).rbegin(), 64u) << "a mark behind the chain";
}

}  // namespace
}  // namespace cistern
