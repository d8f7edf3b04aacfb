#include "core/calc/bar_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cistern::calc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(BarChart, TextBarsAreInProportionAndNeverVanish) {
  const std::string text =
      TextChart({{"plain", 100, "100 GiB"}, {"half", 50, "", true}, {"tiny", 0.01}, {"none", 0}}, 10);
  EXPECT_EQ(text,
            "plain |========== 100 GiB\n"
            "half  |#####\n"
            "tiny  |=\n"
            "none  |\n");
}

TEST(BarChart, TextOfNothingIsNothingAndOfZeroesHasNoBars) {
  EXPECT_EQ(TextChart({}, 10), "");
  EXPECT_EQ(TextChart({{"a", 0}}, 10), "a |\n");
}

TEST(BarChart, LeavesOutWhatIsTooMuchAndSaysSo) {
  EXPECT_THAT(TextChart(std::vector<Bar>(kBarsMax + 2, Bar{"a", 1}), 10), HasSubstr("(2 more left out)"));
}

TEST(BarChart, SvgEscapesItsTexts) {
  const std::string svg = SvgChart("a < b & \"c\"\n", {{"<script>", 1, "1 & 2"}, {"x", 2, "", true}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot; <"));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("width=\"240.0\""));  // Half of the longest bar.
  EXPECT_THAT(svg, HasSubstr("width=\"480.0\""));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace cistern::calc
