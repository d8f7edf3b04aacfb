#include "core/layout/encoding.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>
#include <string_view>

#include "core/bytes.h"
#include "core/tagged_field.h"

namespace cistern::layout {
namespace {

// `tag (1) length (4, little-endian) bytes`, in this order. A list is a field whose bytes are its entries'
// fields. Never renumber: another meaning is another kEncoding, and so other ids.
enum class Tag : uint8_t {
  kEncoding = 1,
  kUnitTokens = 2,
  kBlockTokens = 3,
  kAlignTokens = 4,
  kReplayTokens = 5,
  kStripeLayers = 6,
  kCachelessLayers = 7,
  kGroup = 8,
  kName = 9,
  kFamily = 10,
  kWindowTokens = 11,
  kRequired = 12,
  kLookaheadTokens = 13,
  kSlices = 14,
  kReplicated = 15,
  kSpanEnds = 16,
  kSegment = 17,
  kLayers = 18,
  kTokensPerRow = 19,
  kRowTile = 20,
  kPlane = 21,
  kDtype = 22,
  kHeads = 23,
  kElements = 24,
  kShard = 25,
  kOrder = 26,
  kOrderName = 27,
  kScaleRule = 28,
  kScaleGroup = 29,
  kPadBytes = 30,
  kJoined = 31,
};
constexpr char kEncoding[] = "cistern/layout/2";

void PutList(std::string& out, Tag tag, const std::vector<uint32_t>& values) {
  std::string raw(values.size() * sizeof(uint32_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) StoreLe(&raw[i * sizeof(uint32_t)], values[i]);
  PutField(out, tag, raw);
}

std::string EncodePlane(const Plane& plane) {
  std::string out;
  PutField(out, Tag::kName, plane.name);
  PutField(out, Tag::kDtype, plane.dtype);
  PutField(out, Tag::kHeads, plane.heads);
  PutField(out, Tag::kElements, plane.elements);
  PutField(out, Tag::kShard, static_cast<uint32_t>(plane.shard));
  PutField(out, Tag::kOrder, static_cast<uint32_t>(plane.order));
  PutField(out, Tag::kOrderName, plane.order_name);
  PutField(out, Tag::kScaleRule, plane.scale_rule);
  PutField(out, Tag::kScaleGroup, plane.scale_group);
  PutField(out, Tag::kPadBytes, plane.pad_bytes);
  PutField(out, Tag::kJoined, uint32_t{plane.joined});
  return out;
}

std::string EncodeSegment(const Segment& segment) {
  std::string out;
  PutField(out, Tag::kName, segment.name);
  PutList(out, Tag::kLayers, segment.layers);
  PutField(out, Tag::kTokensPerRow, segment.tokens_per_row);
  PutField(out, Tag::kRowTile, segment.row_tile);
  for (const Plane& plane : segment.planes) PutField(out, Tag::kPlane, EncodePlane(plane));
  return out;
}

std::string EncodeGroup(const Group& group) {
  std::string out;
  PutField(out, Tag::kName, group.name);
  PutField(out, Tag::kFamily, static_cast<uint32_t>(group.family));
  PutField(out, Tag::kWindowTokens, group.window_tokens);
  PutField(out, Tag::kRequired, uint32_t{group.required});
  PutField(out, Tag::kLookaheadTokens, group.lookahead_tokens);
  PutField(out, Tag::kSlices, uint32_t{group.slices});
  PutField(out, Tag::kReplicated, uint32_t{group.replicated});
  PutList(out, Tag::kSpanEnds, group.span_ends);
  for (const Segment& segment : group.segments) PutField(out, Tag::kSegment, EncodeSegment(segment));
  return out;
}

}  // namespace

std::string Encode(const Layout& layout) {
  std::string out;
  PutField(out, Tag::kEncoding, std::string_view(kEncoding));
  PutField(out, Tag::kUnitTokens, layout.unit_tokens);
  PutField(out, Tag::kBlockTokens, layout.block_tokens);
  PutField(out, Tag::kAlignTokens, layout.align_tokens);
  PutField(out, Tag::kReplayTokens, layout.replay_tokens);
  PutField(out, Tag::kStripeLayers, layout.stripe_layers);
  PutList(out, Tag::kCachelessLayers, layout.cacheless_layers);
  for (const Group& group : layout.groups) PutField(out, Tag::kGroup, EncodeGroup(group));
  return out;
}

LayoutId ComputeId(const Layout& layout) {
  const std::string encoding = Encode(layout);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(encoding.data()), encoding.size(), digest.data());
  LayoutId id;
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

}  // namespace cistern::layout
