#include "proto/layout_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/layout/testing/samples.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const std::string& text, const char* words) {
  const absl::StatusOr<layout::Layout> layout = ParseLayoutText(text, "some.textproto");
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(layout.status().message(), HasSubstr(words));
}

TEST(LayoutText, ComesBackTheSame) {
  for (const layout::Layout& sample : {layout::SampleDense(), layout::SampleHybrid()}) {
    const absl::StatusOr<layout::Layout> layout = ParseLayoutText(FormatLayoutText(sample), "sample");
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(*layout, sample);
  }
  EXPECT_THAT(FormatLayoutText(layout::SampleDense()), HasSubstr("layers: [0, 1, 2, 3]"));
}

TEST(LayoutText, NamesThePlaceOfAnError) {
  ExpectRefused("encoding_version: 2\nblock_tokens: sixteen\n", "some.textproto:2:15: Expected integer");
  ExpectRefused("encoding_version: 2\nno_such_field: 1\n", "some.textproto:2:14: Message type");
  ExpectRefused("groups { family: FAMILY_SOUP }", "some.textproto:1:");
  ExpectRefused("groups {", "some.textproto:1:");
  ExpectRefused("block_tokens: 99999999999", "some.textproto:1:15: Integer out of range");
  ExpectRefused("block_tokens: -1", "some.textproto:1:15");
  ExpectRefused(std::string("\0\xff\x01", 3), "some.textproto:1:");
}

TEST(LayoutText, NamesTheFieldOfALayoutThatCannotBe) {
  ExpectRefused("", "some.textproto: layout: encoding_version is 0, this build knows 2");
  ExpectRefused("encoding_version: 2 block_tokens: 16", "some.textproto: layout: groups is empty");
  std::string text = FormatLayoutText(layout::SampleHybrid());
  text.replace(text.find("scale_group: 128"), 16, "scale_group: 100");
  ExpectRefused(text,
                "layout: groups[0].segments[1].planes[0].scale_group is 100, which does not divide the 128");
}

TEST(LayoutText, RefusesTextsOverTheLimitAndNestingThatGoesOn) {
  ExpectRefused(std::string(kLayoutTextBytesMax + 1, '#'), "above the limit of 262144");
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "groups { segments { planes { ";
  ExpectRefused(deep, "some.textproto:1:");
}

}  // namespace
}  // namespace cistern
