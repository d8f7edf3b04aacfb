#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/part.h"

namespace cistern {

// Which coordinates parts of a tier had: asking for each finds all parts of a block. Owner: the tier. Thread:
// its owner's.
class CoordsSeen {
 public:
  explicit CoordsSeen(size_t max) : max_(max) {}

  // False: it is not among them, and `max` others are.
  bool Add(uint32_t packed) {
    const auto at = std::lower_bound(coords_.begin(), coords_.end(), packed);
    if (at != coords_.end() && *at == packed) return true;
    if (IsFull()) return false;
    coords_.insert(at, packed);
    return true;
  }
  bool IsFull() const { return coords_.size() >= max_; }

  // In turns: visit(coord) for those from `from` on, `looks` of them at most, which are taken off. True at
  // their end; else `from` says where to go on.
  template <typename Visit>
  bool Walk(uint32_t& from, uint64_t& looks, Visit visit) const {
    for (auto at = std::lower_bound(coords_.begin(), coords_.end(), from); at != coords_.end(); ++at) {
      from = *at;
      if (looks == 0) return false;
      --looks;
      visit(PartCoord::Unpack(*at));
    }
    from = 0;
    return true;
  }

 private:
  const size_t max_;
  std::vector<uint32_t> coords_;  // Packed, in order.
};

}  // namespace cistern
