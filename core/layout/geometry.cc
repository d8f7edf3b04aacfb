#include "core/layout/geometry.h"

#include <algorithm>

namespace cistern::layout {
namespace {

uint64_t SliceHeads(const Group& group, const Segment& segment) {
  return segment.planes[0].shard == Shard::kHead ? segment.planes[0].heads / group.slices
                                                 : segment.planes[0].heads;
}

// All heads of one layer's rows in one part.
uint64_t LayerBytes(const Layout& layout, const Group& group, const Segment& segment, uint64_t length) {
  return SliceHeads(group, segment) * PartRows(layout, group, segment, length) * RowBytes(segment);
}

bool Has(const Segment& segment, uint32_t layer) {
  return std::binary_search(segment.layers.begin(), segment.layers.end(), layer);
}

struct Border {
  uint32_t first = 0, end = kLayersMax;
};
Border SpanBorder(const Group& group, uint32_t span) {
  if (group.span_ends.empty()) return {};
  return {.first = span == 0 ? 0 : group.span_ends[span - 1], .end = group.span_ends[span]};
}

// Where a plane's bytes of a tile begin, and its row's stride there: joined planes share both.
struct TilePlane {
  uint64_t offset = 0;      // From the tile's begin.
  uint64_t bytes = 0;       // Of the run of joined planes.
  uint64_t row_stride = 0;  // Bytes of a row of the run.
  uint64_t row_offset = 0;  // Of the plane inside such a row.
};
TilePlane PlaceInTile(const Segment& segment, uint32_t plane, uint64_t tile_rows) {
  uint32_t first = plane;
  while (segment.planes[first].joined) --first;
  TilePlane place;
  for (uint32_t p = 0; p < first; ++p) place.offset += RowBytes(segment.planes[p]) * tile_rows;
  for (uint32_t p = first; p < segment.planes.size() && (p == first || segment.planes[p].joined); ++p) {
    if (p < plane) place.row_offset += RowBytes(segment.planes[p]);
    place.row_stride += RowBytes(segment.planes[p]);
  }
  place.bytes = place.row_stride * tile_rows;
  return place;
}

struct TilePlace {
  uint64_t begin = 0;  // Of the tile, from the part's begin.
  TilePlane plane;
  uint64_t row_in_tile = 0;
};
std::optional<TilePlace> FindTile(const Layout& layout, const Group& group, uint32_t span,
                                  const RowPlace& place, uint64_t length) {
  if (place.segment >= group.segments.size()) return std::nullopt;
  const Segment& segment = group.segments[place.segment];
  const uint64_t rows = PartRows(layout, group, segment, length);
  if (place.plane >= segment.planes.size() || place.row >= rows || place.head >= SliceHeads(group, segment) ||
      !Has(segment, place.layer)) {
    return std::nullopt;
  }
  const std::optional<ByteRange> layer = LayerRange(layout, group, span, place.layer, length);
  if (!layer) return std::nullopt;
  TilePlace found;
  found.begin = layer->offset;
  for (uint32_t s = 0; s < place.segment; ++s) {
    if (Has(group.segments[s], place.layer))
      found.begin += LayerBytes(layout, group, group.segments[s], length);
  }
  const uint64_t tile = place.row / segment.row_tile;
  const uint64_t tile_rows = std::min<uint64_t>(segment.row_tile, rows - tile * segment.row_tile);
  found.begin += place.head * rows * RowBytes(segment) + tile * segment.row_tile * RowBytes(segment);
  found.plane = PlaceInTile(segment, place.plane, tile_rows);
  found.row_in_tile = place.row % segment.row_tile;
  return found;
}

}  // namespace

uint32_t SpanCount(const Group& group) {
  return group.span_ends.empty() ? 1 : static_cast<uint32_t>(group.span_ends.size());
}

std::vector<uint32_t> LayersOf(const Group& group) {
  std::vector<uint32_t> layers;
  for (const Segment& segment : group.segments)
    layers.insert(layers.end(), segment.layers.begin(), segment.layers.end());
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

std::vector<uint32_t> LayersOf(const Group& group, uint32_t span) {
  const Border border = SpanBorder(group, span);
  std::vector<uint32_t> layers = LayersOf(group);
  layers.erase(std::lower_bound(layers.begin(), layers.end(), border.end), layers.end());
  layers.erase(layers.begin(), std::lower_bound(layers.begin(), layers.end(), border.first));
  return layers;
}

uint32_t ModelLayers(const Layout& layout) {
  uint32_t layers = layout.cacheless_layers.empty() ? 0 : layout.cacheless_layers.back() + 1;
  for (const Group& group : layout.groups) {
    for (const Segment& segment : group.segments) {
      if (!segment.layers.empty()) layers = std::max(layers, segment.layers.back() + 1);
    }
  }
  return layers;
}

uint64_t PartRows(const Layout& layout, const Group& group, const Segment& segment, uint64_t length) {
  switch (group.family) {
    case Family::kHistory:
      return layout.block_tokens / segment.tokens_per_row;
    case Family::kTailWindow:
      return std::min<uint64_t>(group.window_tokens - 1, length);
    case Family::kTailState:
      return 1;
    case Family::kScratch:
      return 0;
  }
  return 0;
}

uint64_t RowBytes(const Plane& plane) {
  return uint64_t{plane.elements} * DtypeBits(plane.dtype).value_or(0) / 8 + plane.pad_bytes;
}

uint64_t RowBytes(const Segment& segment) {
  uint64_t bytes = 0;
  for (const Plane& plane : segment.planes) bytes += RowBytes(plane);
  return bytes;
}

uint64_t PartBytes(const Layout& layout, const Group& group, uint32_t span, uint64_t length) {
  const Border border = SpanBorder(group, span);
  uint64_t bytes = 0;
  for (const Segment& segment : group.segments) {
    const auto first = std::lower_bound(segment.layers.begin(), segment.layers.end(), border.first);
    const auto end = std::lower_bound(first, segment.layers.end(), border.end);
    bytes += static_cast<uint64_t>(end - first) * LayerBytes(layout, group, segment, length);
  }
  return bytes;
}

uint64_t GroupBytes(const Layout& layout, const Group& group, uint64_t length) {
  uint64_t bytes = 0;
  for (uint32_t span = 0; span < SpanCount(group); ++span) bytes += PartBytes(layout, group, span, length);
  return bytes * group.slices;
}

std::vector<PartCoord> GroupCoords(const Layout& layout, uint32_t group) {
  std::vector<PartCoord> coords;
  const Group& one = layout.groups[group];
  if (one.family == Family::kScratch) return coords;
  const uint32_t spans = SpanCount(one);
  coords.reserve(size_t{one.slices} * spans);
  for (uint16_t slice = 0; slice < one.slices; ++slice) {
    for (uint32_t span = 0; span < spans; ++span) {
      coords.push_back(
          {.group = static_cast<uint8_t>(group), .slice = slice, .span = static_cast<uint16_t>(span)});
    }
  }
  return coords;
}

std::vector<PartCoord> HistoryCoords(const Layout& layout) {
  std::vector<PartCoord> coords;
  for (uint32_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].family != Family::kHistory) continue;
    const std::vector<PartCoord> more = GroupCoords(layout, g);
    coords.insert(coords.end(), more.begin(), more.end());
  }
  return coords;
}

std::vector<PartCoord> TailCoords(const Layout& layout) {
  std::vector<PartCoord> coords;
  for (uint32_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].family == Family::kHistory) continue;
    const std::vector<PartCoord> more = GroupCoords(layout, g);
    coords.insert(coords.end(), more.begin(), more.end());
  }
  return coords;
}

std::optional<ByteRange> LayerRange(const Layout& layout, const Group& group, uint32_t span, uint32_t layer,
                                    uint64_t length) {
  const Border border = SpanBorder(group, span);
  if (layer < border.first || layer >= border.end) return std::nullopt;
  ByteRange range;
  bool found = false;
  for (const Segment& segment : group.segments) {
    const uint64_t bytes = LayerBytes(layout, group, segment, length);
    const auto first = std::lower_bound(segment.layers.begin(), segment.layers.end(), border.first);
    const auto here = std::lower_bound(first, segment.layers.end(), layer);
    range.offset += static_cast<uint64_t>(here - first) * bytes;
    if (here != segment.layers.end() && *here == layer) {
      range.bytes += bytes;
      found = true;
    }
  }
  if (!found) return std::nullopt;
  return range;
}

std::optional<uint64_t> RowOffset(const Layout& layout, const Group& group, uint32_t span,
                                  const RowPlace& place, uint64_t length) {
  const std::optional<TilePlace> tile = FindTile(layout, group, span, place, length);
  if (!tile) return std::nullopt;
  return tile->begin + tile->plane.offset + tile->row_in_tile * tile->plane.row_stride +
         tile->plane.row_offset;
}

std::optional<ByteRange> TileRange(const Layout& layout, const Group& group, uint32_t span,
                                   const RowPlace& place, uint64_t length) {
  const std::optional<TilePlace> tile = FindTile(layout, group, span, place, length);
  if (!tile) return std::nullopt;
  return ByteRange{.offset = tile->begin + tile->plane.offset, .bytes = tile->plane.bytes};
}

std::vector<ByteRange> Stripes(const Layout& layout, const Group& group, uint32_t span, uint64_t length) {
  const std::vector<uint32_t> layers = LayersOf(group, span);
  const size_t step = layout.stripe_layers == 0 ? std::max<size_t>(layers.size(), 1) : layout.stripe_layers;
  std::vector<ByteRange> stripes;
  for (size_t i = 0; i < layers.size(); ++i) {
    const ByteRange layer = *LayerRange(layout, group, span, layers[i], length);
    if (i % step == 0)
      stripes.push_back(layer);
    else
      stripes.back().bytes += layer.bytes;
  }
  return stripes;
}

double BytesPerToken(const Layout& layout, const Group& group) {
  if (group.family != Family::kHistory) return 0;
  return static_cast<double>(GroupBytes(layout, group, 0)) / layout.block_tokens;
}

double BytesPerToken(const Layout& layout) {
  double bytes = 0;
  for (const Group& group : layout.groups) bytes += BytesPerToken(layout, group);
  return bytes;
}

uint64_t ResidentBytes(const Group& group, uint64_t tokens) {
  if (tokens == 0) return 0;
  uint64_t bytes = 0;
  for (const Segment& segment : group.segments) {
    uint64_t rows = 0;
    if (group.family == Family::kHistory) rows = tokens / segment.tokens_per_row;
    if (group.family == Family::kTailWindow) rows = std::min<uint64_t>(group.window_tokens, tokens);
    if (group.family == Family::kTailState) rows = 1;
    bytes += rows * segment.layers.size() * segment.planes[0].heads * RowBytes(segment);
  }
  return bytes;
}

}  // namespace cistern::layout
