#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

enum class PinKind : uint8_t {
  kNone = 0,
  kSoft = 1,  // May be demoted, not forgotten, while anything else can make room.
  kHard = 2,  // Stays where it is until it expires; charged to its owner.
};
inline constexpr uint8_t kPinKindMax = 2;

// How long a stored part is wanted. Plain: as long as its use earns it.
struct Retention {
  uint32_t ttl_s = 0;    // 0: no end.
  bool sliding = false;  // Counts from the last use, else from the put.
  PinKind pin = PinKind::kNone;

  bool IsPlain() const { return ttl_s == 0 && pin == PinKind::kNone; }
  friend bool operator==(const Retention&, const Retention&) = default;
};
inline constexpr uint32_t kTtlSecondsMax = 180u * 86400;  // Half of what coarse time can tell apart.

// False where no node would take it: a longer time than kTtlSecondsMax, sliding without a time.
constexpr bool IsLegal(const Retention& retention) {
  return retention.ttl_s <= kTtlSecondsMax && (retention.ttl_s > 0 || !retention.sliding);
}

// "none", "soft", "hard".
std::string_view PinKindName(PinKind pin);
std::optional<PinKind> ParsePinKind(std::string_view name);

}  // namespace cistern
