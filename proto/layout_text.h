#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/layout/layout.h"

namespace cistern {

inline constexpr size_t kLayoutTextBytesMax = 256u << 10;

// Reads the text form of proto::Layout (docs/layouts/*.textproto): checked field by field, then as a whole.
// InvalidArgument says `source:line:column: what` where the text itself is wrong, and names the field where
// its meaning is. `source` is for people: a file's name.
absl::StatusOr<layout::Layout> ParseLayoutText(std::string_view text, std::string_view source);

// The text of a valid layout; ParseLayoutText gives the layout back.
std::string FormatLayoutText(const layout::Layout& layout);

}  // namespace cistern
