#include "core/layout/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/layout/testing/samples.h"

namespace cistern::layout {
namespace {

using ::testing::ElementsAre;

TEST(LayoutGeometry, CountsLayersSpansAndParts) {
  const Layout layout = SampleHybrid();
  EXPECT_EQ(ModelLayers(layout), 4u);
  EXPECT_EQ(SpanCount(layout.groups[0]), 2u);
  EXPECT_THAT(LayersOf(layout.groups[0]), ElementsAre(1, 3));
  EXPECT_THAT(LayersOf(layout.groups[0], 0), ElementsAre(1));
  EXPECT_THAT(LayersOf(layout.groups[0], 1), ElementsAre(3));
  EXPECT_THAT(HistoryCoords(layout), ElementsAre(PartCoord{0, 0, 0}, PartCoord{0, 0, 1}));
  EXPECT_THAT(TailCoords(layout),
              ElementsAre(PartCoord{1, 0, 0}, PartCoord{1, 1, 0}, PartCoord{2, 0, 0}, PartCoord{2, 1, 0}));
  EXPECT_TRUE(GroupCoords(layout, 3).empty());
}

TEST(LayoutGeometry, F07_EveryLayerAndHeadRangeHasItsOwnCoordinate) {
  Layout layout = SampleDense();
  layout.groups[0].span_ends = {1, 3, 4};
  std::set<uint32_t> packed;
  for (const PartCoord& coord : HistoryCoords(layout)) packed.insert(coord.Packed());
  EXPECT_EQ(packed.size(), 12u);
}

TEST(LayoutGeometry, SizesOfParts) {
  const Layout dense = SampleDense();
  EXPECT_EQ(RowBytes(dense.groups[0].segments[0]), 256u);
  EXPECT_EQ(PartBytes(dense, dense.groups[0], 0, 0), 4u * 16 * 2 * 256);
  EXPECT_EQ(GroupBytes(dense, dense.groups[0], 0), 4u * 16 * 8 * 256);
  EXPECT_EQ(BytesPerToken(dense), 4 * 8 * 256);
  const Layout hybrid = SampleHybrid();
  const uint64_t kv = 16 * 2 * 32;
  EXPECT_EQ(PartBytes(hybrid, hybrid.groups[0], 0, 0), kv);
  EXPECT_EQ(PartBytes(hybrid, hybrid.groups[0], 1, 0), kv + 4 * 132);
  EXPECT_EQ(BytesPerToken(hybrid), (2 * kv + 4 * 132) / 16.0);
  EXPECT_EQ(PartBytes(hybrid, hybrid.groups[2], 0, 0), 2 * 64 * 4 + 48u);
  EXPECT_EQ(PartBytes(hybrid, hybrid.groups[3], 0, 100), 0u);
}

TEST(LayoutGeometry, AWindowHasWhatLiesBeforeItsBoundary) {
  const Layout layout = SampleHybrid();
  const Group& window = layout.groups[1];  // W = 5, 32 bytes a token and slice.
  EXPECT_EQ(PartBytes(layout, window, 0, 0), 0u);
  EXPECT_EQ(PartBytes(layout, window, 0, 1), 32u);
  EXPECT_EQ(PartBytes(layout, window, 0, 4), 4u * 32);
  EXPECT_EQ(PartBytes(layout, window, 0, 1 << 20), 4u * 32);
  EXPECT_EQ(GroupBytes(layout, window, 16), 2u * 4 * 32);
}

TEST(LayoutGeometry, WhatASequenceKeepsInAnEngine) {
  const Layout layout = SampleHybrid();
  EXPECT_EQ(ResidentBytes(layout.groups[0], 0), 0u);
  EXPECT_EQ(ResidentBytes(layout.groups[0], 3), 3u * 2 * 64);
  EXPECT_EQ(ResidentBytes(layout.groups[0], 7), 7u * 2 * 64 + 132);
  EXPECT_EQ(ResidentBytes(layout.groups[1], 3), 3u * 64);
  EXPECT_EQ(ResidentBytes(layout.groups[1], 1000), 5u * 64);
  EXPECT_EQ(ResidentBytes(layout.groups[2], 1), 4u * 64 * 4 + 2 * 48);
  EXPECT_EQ(ResidentBytes(layout.groups[3], 1000), 0u);
}

TEST(LayoutGeometry, ARangeOfLayersIsOneRangeOfBytes) {
  const Layout layout = SampleHybrid();
  const uint64_t kv = 16 * 2 * 32;
  Group whole = layout.groups[0];
  whole.span_ends.clear();
  EXPECT_EQ(LayerRange(layout, whole, 0, 1, 0), (ByteRange{0, kv}));
  EXPECT_EQ(LayerRange(layout, whole, 0, 3, 0), (ByteRange{kv, kv + 4 * 132}));
  EXPECT_EQ(LayerRange(layout, whole, 0, 2, 0), std::nullopt);
  EXPECT_EQ(LayerRange(layout, layout.groups[0], 1, 3, 0), (ByteRange{0, kv + 4 * 132}));
  EXPECT_EQ(LayerRange(layout, layout.groups[0], 0, 3, 0), std::nullopt);
}

// All rows of all planes, written where RowOffset says, cover a part once and leave no hole.
void ExpectRowsTileThePart(const Layout& layout, const Group& group, uint32_t span, uint64_t length) {
  std::vector<int> times(PartBytes(layout, group, span, length), 0);
  for (uint32_t s = 0; s < group.segments.size(); ++s) {
    const Segment& segment = group.segments[s];
    for (uint32_t layer : segment.layers) {
      if (!LayerRange(layout, group, span, layer, length)) continue;
      for (uint32_t head = 0; head < segment.planes[0].heads / group.slices; ++head) {
        for (uint32_t p = 0; p < segment.planes.size(); ++p) {
          for (uint64_t row = 0; row < PartRows(layout, group, segment, length); ++row) {
            const auto offset = RowOffset(layout, group, span, {layer, s, head, p, row}, length);
            ASSERT_TRUE(offset.has_value());
            for (uint64_t i = 0; i < RowBytes(segment.planes[p]); ++i) ++times.at(*offset + i);
          }
        }
      }
    }
  }
  EXPECT_THAT(times, testing::Each(1)) << group.name << " span " << span;
}

TEST(LayoutGeometry, RowsCoverEveryByteOnce) {
  Layout layout = SampleHybrid();
  layout.groups[0].segments[0].row_tile = 5;  // Does not divide 16: the last tile of a head is short.
  layout.groups[0].segments[1].row_tile = 3;
  layout.groups[0].segments[1].planes[0].pad_bytes = 4;
  layout.groups[0].segments[0].planes[1].joined = true;
  ASSERT_EQ(Validate(layout), absl::OkStatus());
  for (const Group& group : layout.groups) {
    for (uint32_t span = 0; span < SpanCount(group); ++span) ExpectRowsTileThePart(layout, group, span, 3);
  }
}

TEST(LayoutGeometry, OrderIsHeadThenTileThenPlaneThenRow) {
  Layout layout = SampleDense();
  Group& group = layout.groups[0];
  const auto at = [&](uint32_t head, uint32_t plane, uint64_t row) {
    return *RowOffset(layout, group, 0, {1, 0, head, plane, row}, 0);
  };
  const uint64_t layer = 16 * 2 * 256;  // Two heads a slice.
  // Tile of one row: K and V of a token side by side.
  EXPECT_EQ(at(0, 0, 0), layer);
  EXPECT_EQ(at(0, 1, 0), layer + 128);
  EXPECT_EQ(at(0, 0, 1), layer + 256);
  EXPECT_EQ(at(1, 0, 0), layer + 16 * 256);
  // Tile of 8 rows: 8 K, then 8 V.
  group.segments[0].row_tile = 8;
  EXPECT_EQ(at(0, 0, 7), layer + 7 * 128);
  EXPECT_EQ(at(0, 1, 0), layer + 8 * 128);
  EXPECT_EQ(at(0, 0, 8), layer + 16 * 128);
  // Joined planes stay side by side in such a tile.
  group.segments[0].planes[1].joined = true;
  EXPECT_EQ(at(0, 1, 0), layer + 128);
  EXPECT_EQ(at(0, 0, 7), layer + 7 * 256);
  EXPECT_EQ(TileRange(layout, group, 0, {1, 0, 1, 0, 9}, 0),
            (ByteRange{layer + 16 * 256 + 8 * 256, 8 * 256}));
  // What is not there has no place.
  EXPECT_EQ(RowOffset(layout, group, 0, {4, 0, 0, 0, 0}, 0), std::nullopt);
  EXPECT_EQ(RowOffset(layout, group, 0, {1, 1, 0, 0, 0}, 0), std::nullopt);
  EXPECT_EQ(RowOffset(layout, group, 0, {1, 0, 2, 0, 0}, 0), std::nullopt);
  EXPECT_EQ(RowOffset(layout, group, 0, {1, 0, 0, 2, 0}, 0), std::nullopt);
  EXPECT_EQ(RowOffset(layout, group, 0, {1, 0, 0, 0, 16}, 0), std::nullopt);
}

TEST(LayoutGeometry, StripesAreWholeLayers) {
  Layout layout = SampleDense();
  const uint64_t layer = 16 * 2 * 256;
  EXPECT_THAT(Stripes(layout, layout.groups[0], 0, 0), ElementsAre(ByteRange{0, 4 * layer}));
  layout.stripe_layers = 3;
  EXPECT_THAT(Stripes(layout, layout.groups[0], 0, 0),
              ElementsAre(ByteRange{0, 3 * layer}, ByteRange{3 * layer, layer}));
}

}  // namespace
}  // namespace cistern::layout
