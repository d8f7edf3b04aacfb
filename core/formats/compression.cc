#include "core/formats/compression.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "core/bytes.h"
#include "core/formats/bf16.h"
#include "core/formats/int4.h"
#include "core/formats/kernels.h"
#include "core/formats/scale_rule.h"
#include "core/formats/scaled.h"
#include "core/part.h"

namespace cistern {
namespace {

constexpr size_t kBf16Bytes = sizeof(uint16_t);
constexpr std::array<const char*, 3> kNames = {"e4m3", "int8", "int4"};

absl::Status Invalid(const char* field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("compression: ", field, " ", what));
}
absl::Status CheckCount(const char* field, uint64_t value, uint64_t max) {
  if (value == 0) return Invalid(field, "is 0");
  if (value > max) return Invalid(field, absl::StrCat("is ", value, ", above the limit of ", max));
  return absl::OkStatus();
}

// Rows of a tile in the stored part: INT4 needs whole groups of tokens, the others keep the tiles that are
// there.
uint32_t StoredTile(const BfPartShape& shape, StoredForm form) {
  return form == StoredForm::kInt4 ? static_cast<uint32_t>(kInt4Group) : shape.row_tile;
}
uint64_t PlaneBytes(const BfPlane& plane, uint64_t rows, StoredForm form) {
  if (form != StoredForm::kInt4) return rows * (plane.elements + sizeof(float));
  return plane.per_channel ? Int4KeyBytes(rows, plane.elements) : Int4ValueBytes(rows, plane.elements);
}

// One plane of one tile, rows beside each other on both sides. False: a value is infinite or NaN.
bool EncodePlane(const BfPlane& plane, uint32_t rows, StoredForm form, const std::byte* raw,
                 std::byte* stored) {
  const size_t n = plane.elements;
  if (form == StoredForm::kInt4) {
    auto* to = reinterpret_cast<uint8_t*>(stored);
    if (!AllFinite(absl::MakeConstSpan(raw, rows * n * kBf16Bytes))) return false;
    plane.per_channel ? EncodeInt4Keys(raw, rows, n, to) : EncodeInt4Values(raw, rows, n, to);
    return true;
  }
  const FormatKernels& kernels = Kernels();
  std::byte* const scales = stored + rows * n;
  for (uint32_t row = 0; row < rows; ++row, raw += n * kBf16Bytes, stored += n) {
    const uint16_t amax_bits = kernels.amax(raw, n);
    if (amax_bits >= kBf16Infinity) return false;
    PrefetchBehind(raw, n * kBf16Bytes);
    const float amax = Bf16ToFloat(amax_bits);
    const float scale = form == StoredForm::kE4m3 ? E4m3Scale(amax) : Int8Scale(amax);
    if (form == StoredForm::kE4m3) {
      kernels.e4m3_encode(raw, n, scale, reinterpret_cast<uint8_t*>(stored));
    } else {
      kernels.int8_encode(raw, n, scale, reinterpret_cast<int8_t*>(stored));
    }
    StoreLe(scales + row * sizeof(float), scale);
  }
  return true;
}

void DecodePlane(const BfPlane& plane, uint32_t rows, StoredForm form, const std::byte* stored,
                 std::byte* raw) {
  const size_t n = plane.elements;
  if (form == StoredForm::kInt4) {
    const auto* from = reinterpret_cast<const uint8_t*>(stored);
    return plane.per_channel ? DecodeInt4Keys(from, rows, n, raw) : DecodeInt4Values(from, rows, n, raw);
  }
  const FormatKernels& kernels = Kernels();
  const std::byte* const scales = stored + rows * n;
  for (uint32_t row = 0; row < rows; ++row, raw += n * kBf16Bytes, stored += n) {
    const auto scale = LoadLe<float>(scales + row * sizeof(float));
    if (form == StoredForm::kE4m3) {
      kernels.e4m3_decode(reinterpret_cast<const uint8_t*>(stored), n, scale, raw);
    } else {
      kernels.int8_decode(reinterpret_cast<const int8_t*>(stored), n, scale, raw);
    }
  }
}

// Where the rows of a stored tile's plane lie in the raw part: row_tile of them, one to all, beside each
// other.
struct RawPlane {
  uint64_t first = 0;   // Byte of row 0 of the sequence.
  uint64_t stride = 0;  // Bytes from tile to tile.
  size_t row_bytes = 0;
  uint32_t row_tile = 1;
  uint64_t At(uint32_t row) const { return first + row / row_tile * stride + row % row_tile * row_bytes; }
};

// Calls visit(plane, raw plane, first row, rows, byte in the stored part) for each plane of each stored tile.
template <typename Visit>
void ForPlanes(const BfPartShape& shape, StoredForm form, const Visit& visit) {
  uint64_t raw_row_bytes = 0, stored = 0;
  for (const BfPlane& plane : shape.planes) raw_row_bytes += uint64_t{plane.elements} * kBf16Bytes;
  const uint32_t tile = StoredTile(shape, form);
  for (uint32_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (uint32_t row = 0; row < shape.rows; row += tile) {
      uint64_t before = 0;
      for (const BfPlane& plane : shape.planes) {
        const RawPlane raw = {.first = sequence * shape.rows * raw_row_bytes + before * shape.row_tile,
                              .stride = shape.row_tile * raw_row_bytes,
                              .row_bytes = plane.elements * kBf16Bytes,
                              .row_tile = shape.row_tile};
        visit(plane, raw, row, tile, stored);
        before += raw.row_bytes;
        stored += PlaneBytes(plane, tile, form);
      }
    }
  }
}

absl::Status CheckSizes(const BfPartShape& shape, StoredForm form, size_t raw, size_t stored) {
  if (absl::Status status = ValidateShape(shape, form); !status.ok()) return status;
  if (raw != shape.RawBytes())
    return Invalid("part", absl::StrCat("has ", raw, " bytes, its shape ", shape.RawBytes()));
  if (stored != StoredBytes(shape, form))
    return Invalid("stored part",
                   absl::StrCat("has ", stored, " bytes, its shape ", StoredBytes(shape, form)));
  return absl::OkStatus();
}

}  // namespace

const char* StoredFormName(StoredForm form) { return kNames[static_cast<size_t>(form)]; }

std::optional<StoredForm> ParseStoredForm(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<StoredForm>(i);
  }
  return std::nullopt;
}

uint64_t BfPartShape::RawBytes() const {
  uint64_t row = 0;
  for (const BfPlane& plane : planes) row += uint64_t{plane.elements} * kBf16Bytes;
  return row * rows * sequences;
}

absl::Status ValidateShape(const BfPartShape& shape, StoredForm form) {
  const struct {
    const char* name;
    uint64_t value, max;
  } counts[] = {{"sequences", shape.sequences, kPartBytesMax},
                {"rows", shape.rows, kPartBytesMax},
                {"row_tile", shape.row_tile, kPartBytesMax},
                {"planes", shape.planes.size(), kPlanesMax}};
  for (const auto& count : counts) {
    if (absl::Status status = CheckCount(count.name, count.value, count.max); !status.ok()) return status;
  }
  uint64_t row_bytes = 0;
  for (const BfPlane& plane : shape.planes) {
    if (absl::Status status = CheckCount("elements", plane.elements, kPlaneElementsMax); !status.ok())
      return status;
    if (form == StoredForm::kInt4 && plane.elements % 2 != 0)
      return Invalid("elements", absl::StrCat("is ", plane.elements, ", odd; int4 packs two a byte"));
    row_bytes += uint64_t{plane.elements} * kBf16Bytes;
  }
  // In this order no product passes 64 bits.
  const uint64_t sequence_bytes = row_bytes * shape.rows;
  if (sequence_bytes > kPartBytesMax || sequence_bytes * shape.sequences > kPartBytesMax)
    return Invalid("rows x sequences",
                   absl::StrCat("make a part above the limit of ", kPartBytesMax, " bytes"));
  if (shape.rows % shape.row_tile != 0)
    return Invalid("rows", absl::StrCat("is ", shape.rows, ", not a multiple of row_tile ", shape.row_tile));
  if (shape.rows % StoredTile(shape, form) != 0) {
    return Invalid("rows", absl::StrCat("is ", shape.rows, ", not a multiple of the ", kInt4Group,
                                        " tokens that int4 scales together; choose int8 or e4m3"));
  }
  return absl::OkStatus();
}

uint64_t StoredBytes(const BfPartShape& shape, StoredForm form) {
  const uint64_t tile = StoredTile(shape, form);
  uint64_t bytes = 0;
  for (const BfPlane& plane : shape.planes) bytes += PlaneBytes(plane, tile, form);
  return bytes * (shape.rows / tile) * shape.sequences;
}

absl::StatusOr<LayoutSpec> StoredLayout(const LayoutSpec& raw, const BfPartShape& shape, StoredForm form) {
  if (absl::Status status = ValidateLayout(raw); !status.ok()) return status;
  if (raw.dtype != "bf16")
    return Invalid("dtype", absl::StrCat("is ", raw.dtype, "; only bf16 is compressed"));
  if (absl::Status status = ValidateShape(shape, form); !status.ok()) return status;
  if (absl::Status status = CheckSizes(shape, form, raw.part_bytes, StoredBytes(shape, form)); !status.ok())
    return status;
  LayoutSpec out = raw;
  out.part_bytes = static_cast<uint32_t>(StoredBytes(shape, form));
  out.dtype = StoredFormName(form);
  const char* rule = form == StoredForm::kE4m3   ? kRuleE4m3Fp32
                     : form == StoredForm::kInt8 ? kRuleInt8Fp32
                                                 : kRuleInt4MinMax;
  absl::StrAppend(&out.geometry, " stored=", out.dtype, " rule=", rule, " tile=", StoredTile(shape, form));
  if (absl::Status status = ValidateLayout(out); !status.ok()) return status;
  return out;
}

absl::Status CompressPart(const BfPartShape& shape, StoredForm form, absl::Span<const std::byte> raw,
                          absl::Span<std::byte> stored) {
  if (absl::Status status = CheckSizes(shape, form, raw.size(), stored.size()); !status.ok()) return status;
  bool finite = true;
  std::vector<std::byte> gathered;
  ForPlanes(shape, form,
            [&](const BfPlane& plane, const RawPlane& from, uint32_t row, uint32_t rows, uint64_t to) {
              const std::byte* at = raw.data() + from.At(row);
              // Tiles of 32 made from others: a copy brings the rows beside each other.
              if (rows != from.row_tile) {
                gathered.resize(rows * from.row_bytes);
                for (uint32_t i = 0; i < rows; ++i)
                  std::memcpy(&gathered[i * from.row_bytes], raw.data() + from.At(row + i), from.row_bytes);
                at = gathered.data();
              }
              finite = finite && EncodePlane(plane, rows, form, at, stored.data() + to);
            });
  if (finite) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("compression: the part has an infinite or NaN value, which ", StoredFormName(form),
                   " cannot hold; store it as bf16"));
}

absl::Status DecompressPart(const BfPartShape& shape, StoredForm form, absl::Span<const std::byte> stored,
                            absl::Span<std::byte> raw) {
  if (absl::Status status = CheckSizes(shape, form, raw.size(), stored.size()); !status.ok()) return status;
  std::vector<std::byte> gathered;
  ForPlanes(shape, form,
            [&](const BfPlane& plane, const RawPlane& to, uint32_t row, uint32_t rows, uint64_t from) {
              if (rows == to.row_tile)
                return DecodePlane(plane, rows, form, stored.data() + from, raw.data() + to.At(row));
              gathered.resize(rows * to.row_bytes);
              DecodePlane(plane, rows, form, stored.data() + from, gathered.data());
              for (uint32_t i = 0; i < rows; ++i)
                std::memcpy(raw.data() + to.At(row + i), &gathered[i * to.row_bytes], to.row_bytes);
            });
  return absl::OkStatus();
}

}  // namespace cistern
