#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

// Fills `bytes` bytes at `out`; false, and nothing is written, unless the text is exactly so many bytes in
// hex, in either case of letters.
bool BytesFromHex(std::string_view text, uint8_t* out, size_t bytes);

// Reads what ToHex (core/ids.h) writes: IdFromHex<ClusterId>(text). Empty for anything else.
template <typename Id>
std::optional<Id> IdFromHex(std::string_view text) {
  Id id;
  if (!BytesFromHex(text, id.bytes.data(), id.bytes.size())) return std::nullopt;
  return id;
}

}  // namespace cistern
