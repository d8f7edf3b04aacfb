#pragma once

#include <cstdint>
#include <string_view>

namespace cistern {

// Why a block, and so the rest of its prompt, was not a hit. PartResult says how a call ended; this says what
// an operator can change. Values are on the wire: never renumber, only append.
enum class MissReason : uint8_t {
  kNone = 0,          // All of it hit.
  kNeverSeen = 1,     // Nobody stored it, as far as the asked nodes remember.
  kEvicted = 2,       // It was here and had to make room.
  kExpired = 3,       // Its time to live ended.
  kLayout = 4,        // Here under another layout or length.
  kTenant = 5,        // The ticket does not open this namespace.
  kBelowMinimum = 6,  // The prompt is shorter than the smallest prefix that is cached.
  kNoTail = 7,        // The history is here, the window or state at no boundary of it.
  kParallelism = 8,   // The reader's ranks do not fit the layout's slices and spans.
  kUnreachable = 9,   // Whoever has it did not answer in time.
};
inline constexpr uint8_t kMissReasonMax = 9;

// "never_seen", "below_minimum", ...
std::string_view MissReasonName(MissReason reason);

}  // namespace cistern
