#include "cache_node/disk/read_memory.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {

ReadMemory::ReadMemory(Segment memory)
    : memory_(memory), units_(static_cast<uint32_t>(memory.bytes / kReadUnitBytes)) {
  CISTERN_CHECK(units_ <= kReadUnitsMax);
}

std::byte* ReadMemory::Take(uint32_t bytes) {
  const uint32_t wanted = UnitsOf(bytes);
  if (wanted == 0 || lent_ == kReadsMax) return nullptr;
  uint32_t free = 0;
  for (uint32_t unit = 0; unit < units_; ++unit) {
    free = taken_[unit] ? 0 : free + 1;
    if (free < wanted) continue;
    const uint32_t first = unit + 1 - wanted;
    for (uint32_t i = first; i <= unit; ++i) taken_.set(i);
    ++lent_;
    return memory_.data + uint64_t{first} * kReadUnitBytes;
  }
  return nullptr;
}

void ReadMemory::Give(const std::byte* piece, uint32_t bytes) {
  const auto first = static_cast<uint32_t>((piece - memory_.data) / kReadUnitBytes);
  for (uint32_t i = first; i < first + UnitsOf(bytes); ++i) {
    CISTERN_CHECK(taken_[i]);
    taken_.reset(i);
  }
  --lent_;
}

uint32_t ReadMemory::RoomFor(uint32_t bytes) const {
  return std::min(kReadsMax, units_ / std::max(UnitsOf(bytes), 1u));
}

}  // namespace cistern
