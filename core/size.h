#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cistern {

// "4096", "64K", "512M", "3G", "1T": powers of 1024, with or without "B" or "iB". Nothing for anything else,
// also not for what does not fit 64 bits.
std::optional<uint64_t> ParseSize(std::string_view text);
// The shortest exact form that ParseSize reads back: 3221225472 -> "3G", 4097 -> "4097".
std::string FormatSize(uint64_t bytes);

}  // namespace cistern
