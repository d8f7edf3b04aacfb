#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern {

// Token ids from text: decimal numbers between blanks, commas, line breaks or brackets, so plain lists and
// JSON arrays both work. InvalidArgument names the first thing that is no 32-bit number, by its position.
absl::StatusOr<std::vector<uint32_t>> ParseTokens(std::string_view text);

}  // namespace cistern
