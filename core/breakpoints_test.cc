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
  std::set<uint64_t> committed;
  const auto look = [&](std::vector<uint64_t> marks) {
    return LookBack(marks, 16, [&](uint64_t tokens) { return committed.contains(tokens); });
  };
  EXPECT_EQ(look({160}), 0u);
  committed = {16 * 30};
  EXPECT_EQ(look({16 * 30}), 16 * 30u);
  EXPECT_EQ(look({16 * 50}), 16 * 30u) << "20 blocks back";
  EXPECT_EQ(look({16 * 51}), 0u) << "21 are too many";
  EXPECT_EQ(look({16 * 35, 16 * 90}), 16 * 30u) << "an earlier mark leads there";
  committed.insert(16 * 34);
  EXPECT_EQ(look({16 * 35, 16 * 40}), 16 * 34u) << "the deepest";
}

}  // namespace
}  // namespace cistern
