#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/layout_spec.h"

namespace cistern {

// Storage compression: the bf16 parts of a layout kept in fewer bits, as parts of another layout with another
// LayoutId. It loses precision (docs/formats.md says how much), so nobody gets it who did not ask; which form
// pays is decided by measured figures (break_even.h). Pure functions.

enum class StoredForm {
  kE4m3,  // One fp32 scale for each row of a plane: (token, head), K and V apart.
  kInt8,  // The same.
  kInt4,  // KIVI: K per channel over 32 rows, V per row over 32 channels; tiles of 32 rows.
};
const char* StoredFormName(StoredForm form);  // "e4m3", "int8", "int4".
std::optional<StoredForm> ParseStoredForm(std::string_view name);

inline constexpr uint32_t kPlanesMax = 8;
inline constexpr uint32_t kPlaneElementsMax = 1u << 16;

struct BfPlane {
  uint32_t elements = 0;     // Of one head and row.
  bool per_channel = false;  // K: INT4 scales follow channels; V: they follow rows.
};
// What a part of bf16 planes holds, in the order of parts:
// [layer, segment, head = sequence][tile][plane][row in tile][element].
struct BfPartShape {
  uint32_t sequences = 0;
  uint32_t rows = 0;      // Of each sequence.
  uint32_t row_tile = 1;  // 1: a row's planes lie beside each other.
  std::vector<BfPlane> planes;

  uint64_t RawBytes() const;
};

// InvalidArgument naming the field: nothing of anything, more than the limits, rows that are no whole tiles,
// an odd number of elements in four bits.
absl::Status ValidateShape(const BfPartShape& shape, StoredForm form);
// Bytes of a part in `form`. `shape` has been validated.
uint64_t StoredBytes(const BfPartShape& shape, StoredForm form);
// The layout that such parts belong to: other part_bytes, dtype and geometry, so another LayoutId.
// InvalidArgument when `raw` is no bf16 layout or its parts have not the bytes that `shape` says.
absl::StatusOr<LayoutSpec> StoredLayout(const LayoutSpec& raw, const BfPartShape& shape, StoredForm form);

// raw: RawBytes, stored: StoredBytes, of any alignment. InvalidArgument for other sizes; FailedPrecondition
// for an infinite or NaN value, which no form can hold: store such a part as it is. `stored` then has no
// meaning.
absl::Status CompressPart(const BfPartShape& shape, StoredForm form, absl::Span<const std::byte> raw,
                          absl::Span<std::byte> stored);
// Any bytes of the right size decode to something; whether they are the right bytes is the checksum's affair.
absl::Status DecompressPart(const BfPartShape& shape, StoredForm form, absl::Span<const std::byte> stored,
                            absl::Span<std::byte> raw);

}  // namespace cistern
