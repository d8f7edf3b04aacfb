#include "core/size.h"

#include <charconv>

namespace cistern {

std::optional<uint64_t> ParseSize(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.empty() || unit == "B") return number;
  static constexpr std::string_view kUnits = "KMGT";
  const char letter = unit[0] >= 'a' && unit[0] <= 'z' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
  const size_t power = kUnits.find(letter);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
  const int shift = 10 * static_cast<int>(power + 1);
  if (number > UINT64_MAX >> shift) return std::nullopt;
  return number << shift;
}

std::string FormatSize(uint64_t bytes) {
  static constexpr char kUnits[] = "TGMK";
  for (int i = 0; i < 4; ++i) {
    const int shift = 40 - 10 * i;
    if (bytes != 0 && bytes % (uint64_t{1} << shift) == 0) return std::to_string(bytes >> shift) + kUnits[i];
  }
  return std::to_string(bytes);
}

}  // namespace cistern
