#include "core/retention.h"

#include <array>

namespace cistern {
namespace {

constexpr std::array<std::string_view, kPinKindMax + 1> kPinNames = {"none", "soft", "hard"};

}  // namespace

std::string_view PinKindName(PinKind pin) { return kPinNames[static_cast<uint8_t>(pin)]; }

std::optional<PinKind> ParsePinKind(std::string_view name) {
  for (uint8_t i = 0; i <= kPinKindMax; ++i) {
    if (kPinNames[i] == name) return static_cast<PinKind>(i);
  }
  return std::nullopt;
}

}  // namespace cistern
