#include "client/cli/shares.h"

#include <string>
#include <vector>

#include "client/cli/svg_plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(Shares, AreRead) {
  EXPECT_DOUBLE_EQ(*ParseShare("5%"), .05);
  EXPECT_DOUBLE_EQ(*ParseShare("0.05"), .05);
  EXPECT_DOUBLE_EQ(*ParseShare("100%"), 1);
  for (const char* wrong : {"", "%", "0%", "101%", "-1%", "x", "5%%", "1e-3", "nan", "5 %"}) {
    EXPECT_EQ(ParseShare(wrong), std::nullopt) << wrong;
  }
}

TEST(Shares, DurationsAreRead) {
  EXPECT_EQ(ParseDurationMs("5m"), 300'000);
  EXPECT_EQ(ParseDurationMs("1.5s"), 1500);
  EXPECT_EQ(ParseDurationMs("24h"), 86'400'000);
  EXPECT_EQ(ParseDurationMs("2d"), 172'800'000);
  for (const char* wrong : {"", "m", "5", "0m", "-5m", "5x", "99999999d"}) {
    EXPECT_EQ(ParseDurationMs(wrong), std::nullopt) << wrong;
  }
}

TEST(SvgPlot, DrawsEachSeriesAndEscapesNames) {
  const std::string svg =
      DrawShares("a<b", "size", "hits", {{"lru", {{.01, .1}, {.5, .4}}}, {"x & y", {{.01, .2}}}});
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_THAT(svg, testing::HasSubstr(">lru</text>"));
  EXPECT_THAT(svg, testing::HasSubstr("x &amp; y"));
  EXPECT_THAT(svg, testing::HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr("nan")));
}

}  // namespace
}  // namespace cistern
