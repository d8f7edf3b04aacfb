#include "core/miss_reason.h"

#include <array>

namespace cistern {

std::string_view MissReasonName(MissReason reason) {
  static constexpr std::array<std::string_view, kMissReasonMax + 1> kNames = {
      "none",   "never_seen",    "evicted", "expired",     "layout",
      "tenant", "below_minimum", "no_tail", "parallelism", "unreachable"};
  const auto i = static_cast<uint8_t>(reason);
  return i <= kMissReasonMax ? kNames[i] : "unknown";
}

}  // namespace cistern
