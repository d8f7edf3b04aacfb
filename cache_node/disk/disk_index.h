#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/disk/record.h"
#include "core/ids.h"
#include "core/part.h"
#include "core/random.h"

namespace cistern {

inline constexpr size_t kDiskLayoutsMax = 4096;

// Where on disk a part lies, as far as memory knows. The full hash stands in the record, and is compared
// before bytes are given out; 64 bits of a keyed mix and the fingerprint choose the record.
struct DiskEntry {
  uint64_t fingerprint = 0;
  uint32_t extent = 0;
  uint32_t data_at : 26 = 0;  // In the extent.
  uint32_t uses : 2 = 0;      // Reads since it was written here, at most kDiskUsesMax.
  uint32_t durable : 1 = 0;
  uint32_t retention : 3 = 0;  // RetentionFlags.
  uint32_t length = 0;
  uint16_t page = 0;    // Of the record.
  uint16_t layout = 0;  // Into DiskIndex's layouts.
};
static_assert(sizeof(DiskEntry) == 24 && kExtentBytes == 1u << 26);
inline constexpr uint8_t kDiskUsesMax = 3;

// Finds parts on disk by (hash, coord): 38 to 76 bytes a part. Owner: DiskTier. Thread: the shard's.
class DiskIndex {
 public:
  // Keys are mixed under a secret of this process, so that no writer can aim at collisions.
  explicit DiskIndex(Random& random);

  DiskEntry* Find(const BlockHash& hash, PartCoord coord);
  const DiskEntry* Find(const BlockHash& hash, PartCoord coord) const;
  // Adds or replaces.
  void Insert(const BlockHash& hash, PartCoord coord, const DiskEntry& entry);
  // There is an entry.
  void Erase(const BlockHash& hash, PartCoord coord);
  // For damage and operators' commands: looks at all.
  template <typename Condition>
  void EraseIf(Condition condition) {
    absl::erase_if(entries_, [&](const auto& row) { return condition(row.second); });
  }

  // The number of a layout; kDiskLayoutsMax when that many are known already.
  uint16_t LayoutNumber(const LayoutId& layout);
  bool IsLayout(uint16_t number, const LayoutId& layout) const { return layouts_[number] == layout; }
  const LayoutId& layout(uint16_t number) const { return layouts_[number]; }

  size_t size() const { return entries_.size(); }
  uint64_t metadata_bytes() const { return entries_.capacity() * (sizeof(uint64_t) + sizeof(DiskEntry) + 1); }

 private:
  struct AsIs {
    size_t operator()(uint64_t key) const { return key; }
  };
  uint64_t Key(const BlockHash& hash, PartCoord coord) const;

  std::array<uint64_t, 4> secret_;
  absl::flat_hash_map<uint64_t, DiskEntry, AsIs> entries_;
  std::vector<LayoutId> layouts_;
};

}  // namespace cistern
