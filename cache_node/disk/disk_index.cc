#include "cache_node/disk/disk_index.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {

uint64_t DiskIndex::Order(const BlockHash& hash, PartCoord coord) const {
  constexpr uint64_t kKeyStep = 1u << 16;
  const uint64_t order = mix_(hash, coord.Packed()) / kKeyStep * kKeyStep;
  return std::min(order, DiskEntry{}.Order() - kKeyStep);
}

DiskEntry* DiskIndex::Find(const BlockHash& hash, PartCoord coord) {
  const uint64_t order = Order(hash, coord);
  DiskEntry* const entry = cells_.At(order);
  return entry->Order() == order ? entry : nullptr;
}

void DiskIndex::Insert(const BlockHash& hash, PartCoord coord, DiskEntry entry) {
  const uint64_t order = Order(hash, coord);
  entry.key_high = static_cast<uint32_t>(order >> 32);
  entry.key_low = static_cast<uint16_t>(order >> 16);
  DiskEntry* const there = cells_.At(order);
  if (there->Order() == order) {
    *there = entry;
  } else {
    cells_.Insert(entry);
  }
}

void DiskIndex::Erase(const BlockHash& hash, PartCoord coord) {
  const uint64_t order = Order(hash, coord);
  DiskEntry* const at = cells_.At(order);
  CISTERN_CHECK(at->Order() == order);
  cells_.Erase(at);
}

uint16_t DiskIndex::LayoutNumber(const LayoutId& layout) {
  const auto at = std::find(layouts_.begin(), layouts_.end(), layout);
  if (at != layouts_.end()) return static_cast<uint16_t>(at - layouts_.begin());
  if (layouts_.size() == kDiskLayoutsMax) return kDiskLayoutsMax;
  layouts_.push_back(layout);
  return static_cast<uint16_t>(layouts_.size() - 1);
}

}  // namespace cistern
