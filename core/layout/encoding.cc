#include "core/layout/encoding.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>
#include <string_view>

#include "core/bytes.h"

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

void Put(std::string& out, Tag tag, std::string_view value) {
  std::array<char, 5> head;
  head[0] = static_cast<char>(tag);
  StoreLe<uint32_t>(&head[1], static_cast<uint32_t>(value.size()));
  out.append(head.data(), head.size());
  out.append(value);
}

void Put(std::string& out, Tag tag, uint32_t value) {
  std::array<char, sizeof(value)> raw;
  StoreLe(raw.data(), value);
  Put(out, tag, std::string_view(raw.data(), raw.size()));
}

void Put(std::string& out, Tag tag, const std::vector<uint32_t>& values) {
  std::string raw(values.size() * sizeof(uint32_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) StoreLe(&raw[i * sizeof(uint32_t)], values[i]);
  Put(out, tag, raw);
}

std::string EncodePlane(const Plane& plane) {
  std::string out;
  Put(out, Tag::kName, plane.name);
  Put(out, Tag::kDtype, plane.dtype);
  Put(out, Tag::kHeads, plane.heads);
  Put(out, Tag::kElements, plane.elements);
  Put(out, Tag::kShard, static_cast<uint32_t>(plane.shard));
  Put(out, Tag::kOrder, static_cast<uint32_t>(plane.order));
  Put(out, Tag::kOrderName, plane.order_name);
  Put(out, Tag::kScaleRule, plane.scale_rule);
  Put(out, Tag::kScaleGroup, plane.scale_group);
  Put(out, Tag::kPadBytes, plane.pad_bytes);
  Put(out, Tag::kJoined, uint32_t{plane.joined});
  return out;
}

std::string EncodeSegment(const Segment& segment) {
  std::string out;
  Put(out, Tag::kName, segment.name);
  Put(out, Tag::kLayers, segment.layers);
  Put(out, Tag::kTokensPerRow, segment.tokens_per_row);
  Put(out, Tag::kRowTile, segment.row_tile);
  for (const Plane& plane : segment.planes) Put(out, Tag::kPlane, EncodePlane(plane));
  return out;
}

std::string EncodeGroup(const Group& group) {
  std::string out;
  Put(out, Tag::kName, group.name);
  Put(out, Tag::kFamily, static_cast<uint32_t>(group.family));
  Put(out, Tag::kWindowTokens, group.window_tokens);
  Put(out, Tag::kRequired, uint32_t{group.required});
  Put(out, Tag::kLookaheadTokens, group.lookahead_tokens);
  Put(out, Tag::kSlices, uint32_t{group.slices});
  Put(out, Tag::kReplicated, uint32_t{group.replicated});
  Put(out, Tag::kSpanEnds, group.span_ends);
  for (const Segment& segment : group.segments) Put(out, Tag::kSegment, EncodeSegment(segment));
  return out;
}

}  // namespace

std::string Encode(const Layout& layout) {
  std::string out;
  Put(out, Tag::kEncoding, std::string_view(kEncoding));
  Put(out, Tag::kUnitTokens, layout.unit_tokens);
  Put(out, Tag::kBlockTokens, layout.block_tokens);
  Put(out, Tag::kAlignTokens, layout.align_tokens);
  Put(out, Tag::kReplayTokens, layout.replay_tokens);
  Put(out, Tag::kStripeLayers, layout.stripe_layers);
  Put(out, Tag::kCachelessLayers, layout.cacheless_layers);
  for (const Group& group : layout.groups) Put(out, Tag::kGroup, EncodeGroup(group));
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
