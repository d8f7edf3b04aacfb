#include "proto/convert_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/layout/encoding.h"
#include "core/layout/testing/samples.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const char* why, const std::function<void(proto::Layout&)>& change) {
  proto::Layout wire = ToWire(layout::SampleHybrid());
  change(wire);
  const absl::StatusOr<layout::Layout> layout = FromWire(wire);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(layout.status().message(), HasSubstr(why));
}

TEST(ConvertLayout, ComesBackTheSameThroughBytes) {
  for (layout::Layout sample : {layout::SampleDense(), layout::SampleHybrid()}) {
    sample.served = true;
    sample.unit_tokens = 8, sample.align_tokens = 32, sample.replay_tokens = 3, sample.stripe_layers = 2;
    sample.groups[0].required = false;
    sample.groups[0].lookahead_tokens = 2;
    sample.groups[0].working = true;
    layout::Plane& plane = sample.groups[0].segments[0].planes[1];
    plane.order = layout::Order::kNamed;
    plane.order_name = std::string("vec");
    plane.pad_bytes = 2;
    proto::Layout wire;
    ASSERT_TRUE(wire.ParseFromString(ToWire(sample).SerializeAsString()));
    const absl::StatusOr<layout::Layout> layout = FromWire(wire);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(*layout, sample);
    EXPECT_EQ(layout::ComputeId(*layout), layout::ComputeId(sample));
  }
}

TEST(ConvertLayout, WhatIsLeftOutHasItsMeaning) {
  proto::Layout wire;
  wire.set_encoding_version(2);
  wire.set_block_tokens(16);
  proto::LayoutGroup& group = *wire.add_groups();
  group.set_name("g");
  group.set_family(proto::LayoutGroup::FAMILY_HISTORY);
  proto::LayoutSegment& segment = *group.add_segments();
  segment.add_layers(0);
  proto::LayoutPlane& plane = *segment.add_planes();
  plane.set_name("k");
  plane.set_dtype("bf16");
  plane.set_elements(4);
  const absl::StatusOr<layout::Layout> layout = FromWire(wire);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->unit_tokens, 16u);
  EXPECT_EQ(layout->align_tokens, 16u);
  EXPECT_TRUE(layout->groups[0].required);
  EXPECT_EQ(layout->groups[0].slices, 1u);
  EXPECT_EQ(layout->groups[0].segments[0].tokens_per_row, 1u);
  EXPECT_EQ(layout->groups[0].segments[0].row_tile, 1u);
  EXPECT_EQ(layout->groups[0].segments[0].planes[0].heads, 1u);
  EXPECT_EQ(layout->groups[0].segments[0].planes[0].shard, layout::Shard::kNone);
}

TEST(ConvertLayout, RefusesVersionsAndValuesThatThisBuildDoesNotKnow) {
  ExpectRefused("encoding_version is 1, this build knows 2",
                [](auto& wire) { wire.set_encoding_version(1); });
  ExpectRefused("encoding_version is 3", [](auto& wire) { wire.set_encoding_version(3); });
  ExpectRefused("groups[1].family is 0; write FAMILY_HISTORY",
                [](auto& wire) { wire.mutable_groups(1)->clear_family(); });
  ExpectRefused("groups[0].family is 7", [](auto& wire) {
    wire.mutable_groups(0)->set_family(static_cast<proto::LayoutGroup::Family>(7));
  });
  ExpectRefused("groups[0].segments[0].planes[1].shard is 5", [](auto& wire) {
    wire.mutable_groups(0)->mutable_segments(0)->mutable_planes(1)->set_shard(
        static_cast<proto::LayoutPlane::Shard>(5));
  });
  ExpectRefused("groups[0].segments[0].planes[1].order is 9", [](auto& wire) {
    wire.mutable_groups(0)->mutable_segments(0)->mutable_planes(1)->set_order(
        static_cast<proto::LayoutPlane::Order>(9));
  });
}

TEST(ConvertLayout, RefusesListsOverTheirLimitsBeforeCopying) {
  ExpectRefused("groups has 17 entries", [](auto& wire) {
    while (wire.groups_size() < 17) *wire.add_groups() = wire.groups(0);
  });
  ExpectRefused("cacheless_layers has 1025 entries", [](auto& wire) {
    for (int i = 0; i < 1025; ++i) wire.add_cacheless_layers(i);
  });
  ExpectRefused("groups[0].span_ends has 65 entries", [](auto& wire) {
    for (int i = 0; i < 63; ++i) wire.mutable_groups(0)->add_span_ends(i);
  });
  ExpectRefused("groups[0].segments[1].layers has 1025 entries", [](auto& wire) {
    while (wire.groups(0).segments(1).layers_size() < 1025)
      wire.mutable_groups(0)->mutable_segments(1)->add_layers(1);
  });
  ExpectRefused("planes has 17 entries", [](auto& wire) {
    proto::LayoutSegment& segment = *wire.mutable_groups(0)->mutable_segments(1);
    while (segment.planes_size() < 17) segment.add_planes();
  });
  ExpectRefused("segments has 17 entries", [](auto& wire) {
    while (wire.groups(0).segments_size() < 17) wire.mutable_groups(0)->add_segments();
  });
  ExpectRefused("groups[0].slices is 4294967295",
                [](auto& wire) { wire.mutable_groups(0)->set_slices(UINT32_MAX); });
}

TEST(ConvertLayout, F55_RefusesWhatTheLayoutsCheckRefuses) {
  ExpectRefused("block_tokens is 0", [](auto& wire) { wire.clear_block_tokens(); });
  ExpectRefused("planes[0].elements is 0", [](auto& wire) {
    wire.mutable_groups(0)->mutable_segments(0)->mutable_planes(0)->set_elements(0);
  });
}

}  // namespace
}  // namespace cistern
