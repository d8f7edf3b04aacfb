#include "core/layout/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/geometry.h"
#include "core/layout/testing/samples.h"

namespace cistern::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A state of `layers` layers with `kib` KiB each.
Group State(uint32_t layers, uint32_t kib) {
  Group group{.name = "s", .family = Family::kTailState};
  Segment segment{.name = "s", .layers = {}, .tokens_per_row = 0};
  for (uint32_t i = 0; i < layers; ++i) segment.layers.push_back(i * 2);
  segment.planes.push_back(HeadPlane("s", 1, kib * 256, "fp32"));
  group.segments.push_back(segment);
  return group;
}

std::vector<uint32_t> Ends(Group group) {
  FitSpans(SampleDense(), group);
  return group.span_ends;
}

TEST(LayoutFit, SpansAreAsFewAndAsEqualAsTheyCanBe) {
  EXPECT_THAT(Ends(State(4, 1024)), IsEmpty());          // 4 MiB fit.
  EXPECT_THAT(Ends(State(5, 1024)), ElementsAre(6, 9));  // 3 + 2.
  EXPECT_THAT(Ends(State(9, 1024)), ElementsAre(6, 12, 17));
  EXPECT_THAT(Ends(State(2, 8192)), ElementsAre(2, 3));  // Each too large for one: alone.
}

TEST(LayoutFit, StripesAreAsSmallAsTheyMayBe) {
  Layout layout = SampleDense();  // 8 KiB a layer and part.
  EXPECT_EQ(FitStripeLayers(layout), 0u);
  layout.block_tokens = 128;  // 64 KiB.
  EXPECT_EQ(FitStripeLayers(layout), 2u);
  layout.groups.push_back(State(96, 1));  // No part has more than 32.
  EXPECT_EQ(FitStripeLayers(layout), 3u);
  layout.groups.clear();
  EXPECT_EQ(FitStripeLayers(layout), 0u);
}

TEST(LayoutFit, BlocksAreAsLargeAsPartsMayBe) {
  Layout layout = SampleDense();  // 2 KiB a token and part.
  EXPECT_EQ(FitBlockTokens(layout, 16, 256), 256u);
  EXPECT_EQ(FitBlockTokens(layout, 16, 4096), 2048u);
  for (Plane& plane : layout.groups[0].segments[0].planes) plane.elements = 65536;
  EXPECT_EQ(FitBlockTokens(layout, 16, 4096), 16u);
}

TEST(LayoutFit, SlicesDivideTheHeads) {
  EXPECT_EQ(FitSlices(1), 1u);
  EXPECT_EQ(FitSlices(2), 2u);
  EXPECT_EQ(FitSlices(16), 8u);
  EXPECT_EQ(FitSlices(12), 6u);
  EXPECT_EQ(FitSlices(13), 1u);
}

}  // namespace
}  // namespace cistern::layout
