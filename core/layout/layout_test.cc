#include "core/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/layout/testing/samples.h"

namespace cistern::layout {
namespace {

using ::testing::HasSubstr;

using Change = std::function<void(Layout&)>;

void ExpectRefused(Layout layout, const char* words, const Change& change) {
  change(layout);
  const absl::Status status = Validate(layout);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
  EXPECT_THAT(status.message(), HasSubstr(words));
}

TEST(Layout, TakesTheSamples) {
  EXPECT_EQ(Validate(SampleDense()), absl::OkStatus());
  EXPECT_EQ(Validate(SampleHybrid()), absl::OkStatus());
}

TEST(Layout, KnowsTheBitsOfADtypeAndTheNameOfAFamily) {
  EXPECT_EQ(DtypeBits("bf16"), 16u);
  EXPECT_EQ(DtypeBits("e2m1"), 4u);
  EXPECT_EQ(DtypeBits("BF16"), std::nullopt);
  EXPECT_EQ(FamilyName(Family::kTailWindow), "window");
  EXPECT_EQ(FamilyName(Family::kScratch), "scratch");
}

TEST(Layout, F55_RefusesZeroesAndNamesTheField) {
  const Layout good = SampleDense();
  ExpectRefused({}, "block_tokens is 0", [](Layout&) {});
  ExpectRefused(good, "unit_tokens is 0", [](Layout& l) { l.unit_tokens = 0; });
  ExpectRefused(good, "block_tokens is 0", [](Layout& l) { l.block_tokens = 0; });
  ExpectRefused(good, "align_tokens is 0", [](Layout& l) { l.align_tokens = 0; });
  ExpectRefused(good, "groups is empty", [](Layout& l) { l.groups.clear(); });
  ExpectRefused(good, "groups[0].slices is 0", [](Layout& l) { l.groups[0].slices = 0; });
  ExpectRefused(good, "groups[0].segments is empty", [](Layout& l) { l.groups[0].segments.clear(); });
  ExpectRefused(good, "groups[0].segments[0].layers is empty",
                [](Layout& l) { l.groups[0].segments[0].layers.clear(); });
  ExpectRefused(good, "segments[0].tokens_per_row is 0",
                [](Layout& l) { l.groups[0].segments[0].tokens_per_row = 0; });
  ExpectRefused(good, "segments[0].row_tile is 0", [](Layout& l) { l.groups[0].segments[0].row_tile = 0; });
  ExpectRefused(good, "segments[0].planes is empty",
                [](Layout& l) { l.groups[0].segments[0].planes.clear(); });
  ExpectRefused(good, "planes[1].heads is 0", [](Layout& l) { l.groups[0].segments[0].planes[1].heads = 0; });
  ExpectRefused(good, "planes[0].elements is 0",
                [](Layout& l) { l.groups[0].segments[0].planes[0].elements = 0; });
}

TEST(Layout, F55_RefusesSizesOverTheLimits) {
  const Layout good = SampleDense();
  ExpectRefused(good, "block_tokens is 8192, above the limit of 4096",
                [](Layout& l) { l.block_tokens = 8192; });
  ExpectRefused(good, "align_tokens", [](Layout& l) { l.align_tokens = UINT32_MAX - 15; });
  ExpectRefused(good, "replay_tokens", [](Layout& l) { l.replay_tokens = UINT32_MAX; });
  ExpectRefused(good, "stripe_layers", [](Layout& l) { l.stripe_layers = UINT32_MAX; });
  ExpectRefused(good, "groups[0].segments[0].layers has 1024, above the limit of 1023",
                [](Layout& l) { l.groups[0].segments[0].layers.back() = kLayersMax; });
  ExpectRefused(good, "planes[0].elements is 16777217",
                [](Layout& l) { l.groups[0].segments[0].planes[0].elements = kElementsMax + 1; });
  ExpectRefused(good, "planes[0].heads is 4294967295",
                [](Layout& l) { l.groups[0].segments[0].planes[0].heads = UINT32_MAX; });
  ExpectRefused(good, "pad_bytes",
                [](Layout& l) { l.groups[0].segments[0].planes[0].pad_bytes = UINT32_MAX; });
  ExpectRefused(good, "groups[0].slices is 257", [](Layout& l) { l.groups[0].slices = 257; });
  ExpectRefused(good, "groups is 17", [](Layout& l) {
    for (int i = 0; i < 16; ++i) {
      l.groups.push_back({.name = "scratch" + std::to_string(i), .family = Family::kScratch});
    }
  });
  // Every number at its limit: refused by the size of a part, without an overflow on the way.
  ExpectRefused(good, "bytes a part and layer, above the limit of 67108864", [](Layout& l) {
    l.unit_tokens = l.block_tokens = l.align_tokens = kBlockTokensMax;
    for (Plane& plane : l.groups[0].segments[0].planes) {
      plane.heads = kHeadsMax, plane.elements = kElementsMax;
    }
  });
}

TEST(Layout, F55_RefusesPartsOverTheLimitAndSaysWhichSpan) {
  ExpectRefused(SampleDense(), "groups[0] has a part of", [](Layout& l) {
    l.groups[0].slices = 1;
    l.unit_tokens = l.block_tokens = l.align_tokens = 4096;
    for (Plane& plane : l.groups[0].segments[0].planes) plane.elements = 512;
  });
}

TEST(Layout, RefusesOverlappingAndMissingLayers) {
  const Layout good = SampleHybrid();
  ExpectRefused(good, "groups[0].segments[0].layers has 1 twice", [](Layout& l) {
    l.groups[0].segments[0].layers = {1, 1, 3};
  });
  ExpectRefused(good, "layers has 1 behind 3; write them ascending", [](Layout& l) {
    l.groups[0].segments[0].layers = {3, 1};
  });
  ExpectRefused(good, "groups[0].segments[2].layers overlaps groups[0].segments[0]", [](Layout& l) {
    Segment again = l.groups[0].segments[0];
    again.layers = {1};
    l.groups[0].segments.push_back(again);
  });
  ExpectRefused(good, "overlaps groups[0].segments[0]: layer 1 has plane 'k' in both", [](Layout& l) {
    Group again = l.groups[0];
    again.name = std::string("again");
    l.groups.push_back(again);
  });
  ExpectRefused(good, "groups have no layer 4 but layer 5", [](Layout& l) {
    l.groups[0].segments[0].layers.push_back(5);
    l.groups[0].span_ends.clear();
  });
  Layout named = good;
  named.groups[0].segments[0].layers.push_back(5);
  named.groups[0].span_ends.clear();
  named.cacheless_layers = {4};
  EXPECT_EQ(Validate(named), absl::OkStatus());
  ExpectRefused(good, "cacheless_layers has layer 2, which is in a group",
                [](Layout& l) { l.cacheless_layers = {2}; });
}

TEST(Layout, F07_RefusesSpansThatLeaveLayersOutOrHaveNone) {
  const Layout good = SampleHybrid();
  ExpectRefused(good, "groups[0].span_ends ends at 3 and leaves out layer 3", [](Layout& l) {
    l.groups[0].span_ends = {2, 3};
  });
  ExpectRefused(good, "makes a span of layers 0 to 1 (end left out) in which the group has none",
                [](Layout& l) {
                  l.groups[0].span_ends = {1, 4};
                });
  ExpectRefused(good, "span_ends has 4 twice", [](Layout& l) { l.groups[0].span_ends = {4, 4}; });
  ExpectRefused(good, "span_ends has 2 behind 4", [](Layout& l) { l.groups[0].span_ends = {4, 2}; });
  ExpectRefused(good, "span_ends is 65, above the limit of 64", [](Layout& l) {
    l.groups[0].span_ends.clear();
    for (uint32_t i = 1; i <= 65; ++i) l.groups[0].span_ends.push_back(i);
  });
}

TEST(Layout, RefusesScalesAndHeadsThatDoNotDivide) {
  const Layout good = SampleHybrid();
  ExpectRefused(good, "groups[0].segments[1].planes[0].scale_group is 48, which does not divide the 128",
                [](Layout& l) { l.groups[0].segments[1].planes[0].scale_group = 48; });
  ExpectRefused(good, "planes[0].scale_rule is empty for e4m3",
                [](Layout& l) { l.groups[0].segments[1].planes[0].scale_rule.clear(); });
  ExpectRefused(good, "planes[0].scale_group is given without a scale_rule",
                [](Layout& l) { l.groups[0].segments[0].planes[0].scale_group = 64; });
  ExpectRefused(good, "planes[0].elements is 127: 4 bits each", [](Layout& l) {
    l.groups[0].segments[1].planes[0].dtype = std::string("e2m1");
    l.groups[0].segments[1].planes[0].elements = 127;
    l.groups[0].segments[1].planes[0].scale_group = 0;
  });
  ExpectRefused(SampleDense(), "planes[0].heads is 8, which 3 slices do not divide",
                [](Layout& l) { l.groups[0].slices = 3; });
  ExpectRefused(SampleDense(), "planes[1].heads is 4, but planes[0] has 8",
                [](Layout& l) { l.groups[0].segments[0].planes[1].heads = 4; });
  ExpectRefused(SampleDense(), "planes[0].shard is NONE in a group of 4 slices",
                [](Layout& l) { l.groups[0].segments[0].planes[0].shard = Shard::kNone; });
  ExpectRefused(SampleDense(), "slices is 4 in a replicated group",
                [](Layout& l) { l.groups[0].replicated = true; });
}

TEST(Layout, F05_RefusesADtypeItDoesNotKnowAndListsThoseItKnows) {
  const Change change = [](Layout& l) { l.groups[0].segments[0].planes[0].dtype = std::string("float7"); };
  ExpectRefused(SampleDense(), "planes[0].dtype 'float7' is unknown; this build knows fp32, bf16", change);
}

TEST(Layout, RefusesRowsAgainstTheirFamily) {
  const Layout good = SampleHybrid();
  ExpectRefused(good, "window_tokens is 0", [](Layout& l) { l.groups[1].window_tokens = 0; });
  ExpectRefused(good, "window_tokens is 1", [](Layout& l) { l.groups[1].window_tokens = 1; });
  ExpectRefused(good, "groups[0].window_tokens is 5 in a history group",
                [](Layout& l) { l.groups[0].window_tokens = 5; });
  ExpectRefused(good, "tokens_per_row is 4; a window has one row a token",
                [](Layout& l) { l.groups[1].segments[0].tokens_per_row = 4; });
  ExpectRefused(good, "tokens_per_row is 1; a snapshot has one row and says 0",
                [](Layout& l) { l.groups[2].segments[0].tokens_per_row = 1; });
  ExpectRefused(good, "tokens_per_row is 3, which does not divide block_tokens (16)",
                [](Layout& l) { l.groups[0].segments[1].tokens_per_row = 3; });
  ExpectRefused(good, "family is 9", [](Layout& l) { l.groups[0].family = static_cast<Family>(9); });
}

TEST(Layout, RefusesNamesTwiceEmptyLongOrOdd) {
  const Layout good = SampleHybrid();
  ExpectRefused(good, "groups[1].name is 'full'", [](Layout& l) { l.groups[1].name = std::string("full"); });
  ExpectRefused(good, "groups[0].name is empty", [](Layout& l) { l.groups[0].name.clear(); });
  ExpectRefused(good, "groups[0].name has a blank", [](Layout& l) { l.groups[0].name = std::string("a b"); });
  ExpectRefused(good, "groups[0].name is longer", [](Layout& l) { l.groups[0].name = std::string(65, 'x'); });
  ExpectRefused(good, "model has a blank", [](Layout& l) { l.model = std::string("a\n"); });
  ExpectRefused(good, "planes[1].name is 'k', as planes[0]'s",
                [](Layout& l) { l.groups[0].segments[0].planes[1].name = std::string("k"); });
}

TEST(Layout, RefusesOrdersThatCannotBe) {
  const Layout good = SampleDense();
  const auto plane = [](Layout& l) -> Plane& { return l.groups[0].segments[0].planes[0]; };
  ExpectRefused(good, "joined is set for the first plane", [&](Layout& l) { plane(l).joined = true; });
  ExpectRefused(good, "joined is set between planes", [&](Layout& l) {
    plane(l).order = Order::kColumn;
    l.groups[0].segments[0].planes[1].joined = true;
  });
  ExpectRefused(good, "order_name is empty", [&](Layout& l) { plane(l).order = Order::kNamed; });
  ExpectRefused(good, "order_name is given", [&](Layout& l) { plane(l).order_name = std::string("vec"); });
  ExpectRefused(good, "pad_bytes is given for a transposed plane", [&](Layout& l) {
    plane(l).order = Order::kColumn;
    plane(l).pad_bytes = 4;
  });
}

TEST(Layout, RefusesTooManyStripesAndParts) {
  Layout layout = SampleDense();
  layout.groups[0].segments[0].layers.clear();
  for (uint32_t i = 0; i < 66; ++i) layout.groups[0].segments[0].layers.push_back(i);
  ExpectRefused(layout, "stripe_layers is 2, which makes 33 stripes of a part of groups[0]",
                [](Layout& l) { l.stripe_layers = 2; });
  ExpectRefused(layout, "groups make 264 parts of one block", [](Layout& l) {
    Group& group = l.groups[0];
    for (uint32_t i = 1; i <= 33; ++i) group.span_ends.push_back(2 * i);
    Group more = group;
    more.name = std::string("more");
    for (Plane& plane : more.segments[0].planes) plane.name += "2";
    l.groups.push_back(more);
  });
}

}  // namespace
}  // namespace cistern::layout
