#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cistern {

inline constexpr size_t kCoordsSeenMax = 65536;  // Layouts have some hundred; a writer may name any.

// Which coordinates parts of a tier have or had: asking for each finds all parts of a block. What is not
// among them may not be kept: no drop of its block would find it. Owner: the tier. Thread: its owner's.
class CoordsSeen {
 public:
  // False: it is not among them, and kCoordsSeenMax others are.
  bool Add(uint32_t packed) {
    const auto at = std::lower_bound(coords_.begin(), coords_.end(), packed);
    if (at != coords_.end() && *at == packed) return true;
    if (coords_.size() == kCoordsSeenMax) return false;
    coords_.insert(at, packed);
    return true;
  }
  // The first at or behind `from`; kNone: there is none.
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t Next(uint64_t from) const {
    const auto at = std::lower_bound(coords_.begin(), coords_.end(), from);
    return at == coords_.end() ? kNone : *at;
  }

 private:
  std::vector<uint32_t> coords_;  // Packed, in order.
};

}  // namespace cistern
