#include "cache_node/disk/disk_index.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/check.h"

namespace cistern {
namespace {

// 64 x 64 -> 128 bits, folded.
uint64_t Fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

DiskIndex::DiskIndex(Random& random) {
  for (uint64_t& word : secret_) word = random.Next() | 1;
}

uint64_t DiskIndex::Key(const BlockHash& hash, PartCoord coord) const {
  const uint8_t* bytes = hash.bytes.data();
  const uint64_t low = Fold(LoadLe<uint64_t>(bytes) ^ secret_[0], LoadLe<uint64_t>(bytes + 8) ^ secret_[1]);
  const uint64_t high =
      Fold(LoadLe<uint64_t>(bytes + 16) ^ secret_[2], LoadLe<uint64_t>(bytes + 24) ^ secret_[3]);
  return Fold(low ^ coord.Packed(), high ^ secret_[1]);
}

DiskEntry* DiskIndex::Find(const BlockHash& hash, PartCoord coord) {
  const auto it = entries_.find(Key(hash, coord));
  return it == entries_.end() ? nullptr : &it->second;
}

const DiskEntry* DiskIndex::Find(const BlockHash& hash, PartCoord coord) const {
  const auto it = entries_.find(Key(hash, coord));
  return it == entries_.end() ? nullptr : &it->second;
}

void DiskIndex::Insert(const BlockHash& hash, PartCoord coord, const DiskEntry& entry) {
  entries_.insert_or_assign(Key(hash, coord), entry);
}

void DiskIndex::Erase(const BlockHash& hash, PartCoord coord) {
  CISTERN_CHECK(entries_.erase(Key(hash, coord)) == 1);
}

uint16_t DiskIndex::LayoutNumber(const LayoutId& layout) {
  const auto at = std::find(layouts_.begin(), layouts_.end(), layout);
  if (at != layouts_.end()) return static_cast<uint16_t>(at - layouts_.begin());
  if (layouts_.size() == kDiskLayoutsMax) return kDiskLayoutsMax;
  layouts_.push_back(layout);
  return static_cast<uint16_t>(layouts_.size() - 1);
}

}  // namespace cistern
