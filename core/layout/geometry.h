#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/layout/layout.h"
#include "core/part.h"

// Sizes, coordinates and offsets of a valid layout's parts (Validate has passed; else results mean nothing).
//
// Order of a part: [layer][segment][head][tile][plane][row in tile][element], so a range of layers is one
// range of bytes. `length` is the boundary L of a tail: parts of TAIL_WINDOW groups have min(W - 1, L) rows.
// HISTORY parts are of one whole block and TAIL_STATE parts of one snapshot, whatever `length` is.
namespace cistern::layout {

uint32_t SpanCount(const Group& group);
// Model layer ids that any segment has, ascending; of the whole group or of one span.
std::vector<uint32_t> LayersOf(const Group& group);
std::vector<uint32_t> LayersOf(const Group& group, uint32_t span);
// Layers of the model: one more than the highest id anywhere.
uint32_t ModelLayers(const Layout& layout);

// Rows of one head and layer of this segment in one part.
uint64_t PartRows(const Layout& layout, const Group& group, const Segment& segment, uint64_t length);

// Bytes of one row of one head, all planes.
uint64_t RowBytes(const Segment& segment);
uint64_t RowBytes(const Plane& plane);

// Bytes of one part; equal for all slices. 0 for SCRATCH, and for a window at length 0.
uint64_t PartBytes(const Layout& layout, const Group& group, uint32_t span, uint64_t length);
// All parts of one block (HISTORY) or of one boundary's tail.
uint64_t GroupBytes(const Layout& layout, const Group& group, uint64_t length);

// Parts of one block or boundary in storage order: slice-major, then span. None for SCRATCH.
std::vector<PartCoord> GroupCoords(const Layout& layout, uint32_t group);
// The same over all groups of one kind: HISTORY, or everything a boundary's tail has.
std::vector<PartCoord> HistoryCoords(const Layout& layout);
std::vector<PartCoord> TailCoords(const Layout& layout);

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
// Where a model layer's bytes lie in its part; nullopt when the span has no such layer.
std::optional<ByteRange> LayerRange(const Layout& layout, const Group& group, uint32_t span, uint32_t layer,
                                    uint64_t length);

// One row of one plane and head in a part. `segment`, `plane` are positions in their lists; `head` counts
// inside the slice. For Order::kColumn and kNamed it is where the row would start in row order: only the
// tile's range (TileRange) means something to the caller then.
struct RowPlace {
  uint32_t layer = 0;
  uint32_t segment = 0;
  uint32_t head = 0;
  uint32_t plane = 0;
  uint64_t row = 0;
};
std::optional<uint64_t> RowOffset(const Layout& layout, const Group& group, uint32_t span,
                                  const RowPlace& place, uint64_t length);
// The plane's bytes of the whole tile that holds the row. A joined plane and the one before it share theirs.
std::optional<ByteRange> TileRange(const Layout& layout, const Group& group, uint32_t span,
                                   const RowPlace& place, uint64_t length);

// Layers of a span in pieces of stripe_layers: the bytes that share one CRC.
std::vector<ByteRange> Stripes(const Layout& layout, const Group& group, uint32_t span, uint64_t length);

// History bytes that one more token costs, all groups and ranks' copies counted once. Rows per 128 tokens
// make it a fraction.
double BytesPerToken(const Layout& layout);
double BytesPerToken(const Layout& layout, const Group& group);
// What one sequence of `tokens` keeps in an engine: history rows made so far (tokens / tokens_per_row), a
// window's last min(W, tokens) rows (the current token included), one state. 0 for SCRATCH.
uint64_t ResidentBytes(const Group& group, uint64_t tokens);

}  // namespace cistern::layout
