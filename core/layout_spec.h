#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/part.h"

namespace cistern {

inline constexpr uint32_t kSlicesMax = 256;
inline constexpr uint32_t kSpansMax = 64;
inline constexpr uint32_t kBlockTokensMax = 4096;
inline constexpr uint32_t kLayoutEncodingVersion = 1;
inline constexpr uint32_t kPartsPerBlockMax =
    256;  // A request names every part of a block by its coordinates.
inline constexpr size_t kModelBytesMax = 256;
inline constexpr size_t kDtypeBytesMax = 32;
inline constexpr size_t kGeometryBytesMax = 4096;

// What the data path needs to know of a layout. One HISTORY group for now; tails come with the layout
// registry.
struct LayoutSpec {
  std::string model{};        // For people; not hashed.
  uint32_t block_tokens = 0;  // Tokens a block.
  uint32_t part_bytes = 0;    // Bytes of one part (one slice, one span).
  uint16_t slices = 1;
  uint16_t spans = 1;
  std::string dtype = "opaque";  // "bf16", "fp16", "e4m3", ... or "opaque"; hashed.
  std::string geometry{};        // Heads, head size, K/V order, scale rule as the caller writes them; hashed.

  uint64_t BlockBytes() const { return uint64_t{part_bytes} * slices * spans; }
  uint32_t PartsPerBlock() const { return uint32_t{slices} * spans; }
};

// InvalidArgument naming the field: 0 tokens, 0 bytes, part over kPartBytesMax, too many slices, a part that
// is no whole number of elements of a dtype known by name (F55).
absl::Status ValidateLayout(const LayoutSpec& layout);
// The canonical encoding: every hashed field with tag and length, fixed order and widths.
std::string EncodeLayout(const LayoutSpec& layout);
// SHA-256 of the canonical encoding, cut to 16 bytes.
LayoutId ComputeLayoutId(const LayoutSpec& layout);
// Part coordinates of a block in storage order: slice-major, then span.
std::vector<PartCoord> AllCoords(const LayoutSpec& layout);

}  // namespace cistern
