#include "core/layout_spec.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/tagged_field.h"

namespace cistern {
namespace {

// Fields of the canonical encoding: `tag (1) length (4, little-endian) bytes`, in this order. Never renumber;
// a change of the encoding is another kEncoding, and so other ids.
enum class Tag : uint8_t {
  kEncoding = 1,
  kFamily = 2,
  kBlockTokens = 3,
  kPartBytes = 4,
  kSlices = 5,
  kSpans = 6,
  kDtype = 7,
  kGeometry = 8,
};
constexpr char kEncoding[] = "cistern/layout/1";
constexpr char kFamilyHistory[] = "history";

struct Dtype {
  std::string_view name;
  uint32_t bytes;
};
// Bytes of one element; what is not listed here may be any name and has no element size that could be
// checked.
constexpr std::array<Dtype, 8> kDtypes = {{{"fp32", 4},
                                           {"bf16", 2},
                                           {"fp16", 2},
                                           {"e4m3", 1},
                                           {"e5m2", 1},
                                           {"int8", 1},
                                           {"fp4", 1},
                                           {"opaque", 1}}};

absl::Status Invalid(const char* field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("layout: ", field, " ", what));
}

absl::Status CheckRange(const char* field, uint64_t value, uint64_t max) {
  if (value == 0) return Invalid(field, "is 0");
  if (value > max) return Invalid(field, absl::StrCat("is ", value, ", above the limit of ", max));
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateLayout(const LayoutSpec& layout) {
  const struct {
    const char* name;
    uint64_t value, max;
  } ranges[] = {
      {"block_tokens", layout.block_tokens, kBlockTokensMax},
      {"part_bytes", layout.part_bytes, kPartBytesMax},
      {"slices", layout.slices, kSlicesMax},
      {"spans", layout.spans, kSpansMax},
      {"slices x spans", layout.PartsPerBlock(), kPartsPerBlockMax},
  };
  for (const auto& range : ranges) {
    if (absl::Status status = CheckRange(range.name, range.value, range.max); !status.ok()) return status;
  }
  if (layout.dtype.empty()) return Invalid("dtype", "is empty");
  if (layout.dtype.size() > kDtypeBytesMax)
    return Invalid("dtype", absl::StrCat("is longer than ", kDtypeBytesMax));
  if (layout.geometry.size() > kGeometryBytesMax) {
    return Invalid("geometry", absl::StrCat("is longer than ", kGeometryBytesMax));
  }
  if (layout.model.size() > kModelBytesMax)
    return Invalid("model", absl::StrCat("is longer than ", kModelBytesMax));
  const auto* dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& known) { return known.name == layout.dtype; });
  if (dtype != kDtypes.end() && layout.part_bytes % dtype->bytes != 0) {
    return Invalid("part_bytes", absl::StrCat("is ", layout.part_bytes, ", not a multiple of the ",
                                              dtype->bytes, " bytes of one element"));
  }
  return absl::OkStatus();
}

std::string EncodeLayout(const LayoutSpec& layout) {
  std::string out;
  PutField(out, Tag::kEncoding, kEncoding);
  PutField(out, Tag::kFamily, kFamilyHistory);
  PutField(out, Tag::kBlockTokens, layout.block_tokens);
  PutField(out, Tag::kPartBytes, layout.part_bytes);
  PutField(out, Tag::kSlices, layout.slices);
  PutField(out, Tag::kSpans, layout.spans);
  PutField(out, Tag::kDtype, layout.dtype);
  PutField(out, Tag::kGeometry, layout.geometry);
  return out;
}

LayoutId ComputeLayoutId(const LayoutSpec& layout) {
  const std::string encoding = EncodeLayout(layout);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(encoding.data()), encoding.size(), digest.data());
  LayoutId id;
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

std::vector<PartCoord> AllCoords(const LayoutSpec& layout) {
  std::vector<PartCoord> out;
  out.reserve(layout.PartsPerBlock());
  for (uint16_t slice = 0; slice < layout.slices; ++slice) {
    for (uint16_t span = 0; span < layout.spans; ++span) {
      out.push_back({.group = 0, .slice = slice, .span = span});
    }
  }
  return out;
}

}  // namespace cistern
