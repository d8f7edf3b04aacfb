#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/layout_spec.h"

// What bytes a block has for one model (DESIGN §4): plain values, filled from docs/layouts/*.textproto
// (proto/layout_text.h), from a model's config, or by hand. Sizes and offsets: geometry.h; the id:
// encoding.h.
//
// A layout is data about a model whose rows we know. Bytes that only their owner understands keep LayoutSpec
// (core/layout_spec.h): one opaque history group. Both give LayoutIds, from encodings that cannot be equal.
namespace cistern::layout {

inline constexpr uint32_t kEncodingVersion = 2;  // 1 is LayoutSpec's encoding.
inline constexpr size_t kGroupsMax = 16;
inline constexpr size_t kSegmentsMax = 16;  // A group.
inline constexpr size_t kPlanesMax = 16;    // A segment.
inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kHeadsMax = 4096;
inline constexpr uint32_t kElementsMax = 1u << 24;  // Of one head's row.
inline constexpr uint32_t kPadBytesMax = 4096;
inline constexpr uint32_t kRowTileMax = 4096;
inline constexpr uint32_t kWindowTokensMax = 1u << 17;
inline constexpr uint32_t kReplayTokensMax = 1u << 17;
inline constexpr uint32_t kAlignTokensMax = 1u << 17;
inline constexpr uint32_t kStripesMax = 32;  // CRCs of one part.
inline constexpr uint32_t kStripeLayersMax = kLayersMax;
inline constexpr uint32_t kLookaheadTokensMax = 64;
inline constexpr size_t kNameBytesMax = 64;
// Of one part of a layout. Above kPartBytesMax (4 MiB) a node splits it over slots; shipped layouts cut spans
// so that none has to be.
inline constexpr uint64_t kLayoutPartBytesMax = uint64_t{64} << 20;

// What a group keeps. Values are in the canonical encoding and on the wire: never renumber.
enum class Family : uint8_t {
  kHistory = 1,     // Every block.
  kTailWindow = 2,  // The last min(W - 1, L) tokens before a boundary L.
  kTailState = 3,   // One snapshot at a boundary L.
  kScratch = 4,     // Never stored; here so that a layout names all that an engine allocates.
};
// How TP ranks share a plane's heads.
enum class Shard : uint8_t {
  kNone = 1,  // One copy for all heads.
  kHead = 2,  // Cut by heads.
};
// Order of the elements of one tile of a plane.
enum class Order : uint8_t {
  kRow = 1,     // Row after row.
  kColumn = 2,  // Transposed over the tile: all rows' element 0, then all rows' element 1, ...
  kNamed = 3,   // As Plane::order_name says; the tile has the same bytes, only their order is special.
};

// One array of equal elements: the K of a layer's heads, a latent row, a row of scales.
struct Plane {
  std::string name{};
  std::string dtype{};  // One that DtypeBits knows.
  uint32_t heads = 1;
  uint32_t elements = 0;  // Per head and row.
  Shard shard = Shard::kNone;
  Order order = Order::kRow;
  std::string order_name{};  // Of Order::kNamed alone.
  // How values were quantised, by the rule's exact name ("e4m3:amax/448,fp32,min=FLT_MIN", "none"). Needed
  // for dtypes of 8 bits and less that hold values; the scales themselves are a plane of their own, or
  // static.
  std::string scale_rule{};
  uint32_t scale_group = 0;  // Elements of a row that share a scale; 0: no scale per row.
  uint32_t pad_bytes = 0;    // Behind each head's row, stored because the format has it.
  // This plane's row lies right behind the same row of the plane before it, whatever the row tile: V4's rows
  // are 448 fp8 and 64 bf16 values side by side, and their scales stand behind all rows of a page.
  bool joined = false;
  friend bool operator==(const Plane&, const Plane&) = default;
};

// Planes of equal row cadence and heads, in some layers.
struct Segment {
  std::string name{};
  std::vector<uint32_t> layers{};  // Model layer ids, ascending.
  uint32_t tokens_per_row = 1;     // 1, 4, 128; 0: one row a snapshot.
  uint32_t row_tile = 1;  // Rows of one head whose planes lie behind one another; the last tile may be short.
  std::vector<Plane> planes{};
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Layers of one life, stored as parts (slice x span).
struct Group {
  std::string name{};
  Family family = Family::kHistory;
  uint32_t window_tokens = 0;     // W of a TAIL_WINDOW: the token itself and the W - 1 before it.
  bool required = true;           // A hit needs it.
  uint32_t lookahead_tokens = 0;  // Draft layers: match so many tokens further, then drop them.
  uint16_t slices = 1;            // Equal shares of the heads.
  bool replicated = false;        // Every TP rank holds the same bytes; one of them writes.
  // The first model layer id behind each span, ascending; the last one is behind all layers. Empty: one span.
  std::vector<uint32_t> span_ends{};
  // Half-made rows of an engine: needed to go on, no KV that attention reads. Not part of the id.
  bool working = false;
  std::vector<Segment> segments{};
  friend bool operator==(const Group&, const Group&) = default;
};

struct Layout {
  std::string model{};       // For people and for finding it by name; not part of the id, like the next two.
  std::string rows{};        // Row format, "bf16", "fp8", "fp8/fp4": with `model` the layout's name.
  bool served = false;       // What the bare model name means: the rows that engines serve.
  uint32_t unit_tokens = 0;  // Tokens of one hash.
  uint32_t block_tokens = 0;
  uint32_t align_tokens = 0;  // Hits are multiples of it.
  uint32_t replay_tokens =
      0;  // Tokens before a hit's end that the engine computes again, into scratch groups.
  uint32_t stripe_layers = 0;                // Layers that share a CRC inside a part; 0: the whole part.
  std::vector<uint32_t> cacheless_layers{};  // Layers in no group: they keep nothing of their own.
  std::vector<Group> groups{};
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Lower-case names as in DESIGN §12 and the text format: "history", "window", "state", "scratch".
std::string_view FamilyName(Family family);

// Bits of one element: fp32, bf16, fp16, e4m3, e5m2, int8, uint8, ue8m0, e2m1, int4 or opaque (bytes).
std::optional<uint32_t> DtypeBits(std::string_view dtype);

// InvalidArgument that names the field by its path ("layout: groups[0].segments[1].planes[0].scale_group
// ..."): zero and huge numbers, layers twice in one plane or missing in all, spans that leave layers out,
// heads that slices do not divide, scale groups that do not divide a row, parts over kLayoutPartBytesMax,
// unknown dtypes.
absl::Status Validate(const Layout& layout);

}  // namespace cistern::layout
