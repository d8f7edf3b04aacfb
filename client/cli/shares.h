#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

// "5%" or "0.05", in (0, 1]; nothing for anything else.
std::optional<double> ParseShare(std::string_view text);
// "90s", "5m", "1h" or "2d", above 0 and at most 10 years, in milliseconds; nothing for anything else.
std::optional<int64_t> ParseDurationMs(std::string_view text);

}  // namespace cistern
