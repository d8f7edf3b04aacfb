#include "client/cli/shares.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace cistern {
namespace {

constexpr int64_t kDurationMsMax = int64_t{10} * 366 * 86'400'000;

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> ParseShare(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  std::optional<double> share = ParseNumber(text);
  if (share && percent) *share /= 100;
  return share && *share > 0 && *share <= 1 ? share : std::nullopt;
}

std::optional<int64_t> ParseDurationMs(std::string_view text) {
  if (text.empty()) return std::nullopt;
  int64_t unit = 0;
  switch (text.back()) {
    case 's':
      unit = 1000;
      break;
    case 'm':
      unit = 60'000;
      break;
    case 'h':
      unit = 3'600'000;
      break;
    case 'd':
      unit = 86'400'000;
      break;
    default:
      return std::nullopt;
  }
  const std::optional<double> value = ParseNumber(text.substr(0, text.size() - 1));
  if (!value || !(*value > 0) || *value * static_cast<double>(unit) > static_cast<double>(kDurationMsMax))
    return std::nullopt;
  return static_cast<int64_t>(*value * static_cast<double>(unit));
}

}  // namespace cistern
