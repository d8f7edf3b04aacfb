#pragma once

#include <cstdint>
#include <vector>

#include "cache_node/cell_table.h"
#include "cache_node/disk/record.h"
#include "cache_node/part_mixer.h"
#include "core/ids.h"
#include "core/part.h"
#include "core/random.h"

namespace cistern {

inline constexpr size_t kDiskLayoutsMax = 4096;
inline constexpr uint8_t kDiskUsesMax = 3;

// Where on disk a part lies, as far as memory knows. The whole key stands in the record, and is compared
// before bytes are given out; 48 bits of a keyed mix of hash and coord and 16 of the fingerprint choose the
// record.
struct DiskEntry {
  uint32_t key_high = UINT32_MAX;
  uint16_t key_low = UINT16_MAX;
  uint16_t fingerprint = 0;  // Folded.
  uint32_t extent : 20 = 0;
  uint32_t layout : 12 = 0;  // Into DiskIndex's layouts.
  uint32_t page : 14 = 0;    // Of the record.
  uint32_t at : 16 = 0;      // In its payload, in steps of kPartAlign.
  uint32_t uses : 2 = 0;     // Reads since it was written here, at most kDiskUsesMax.
  uint32_t length : 23 = 0;
  uint32_t durable : 1 = 0;
  uint32_t retention : 3 = 0;  // RetentionFlags.

  uint32_t record_at() const { return page * kPageBytes; }  // In the extent, like the next two.
  uint32_t data_at() const { return record_at() + kPageBytes + at * kPartAlign; }
  uint32_t end() const { return RoundUpTo(data_at() + length, kPageBytes); }
  bool IsAt(uint32_t other_extent, uint32_t other_data_at) const {
    return extent == other_extent && data_at() == other_data_at;
  }
  bool IsAt(const DiskEntry& other) const { return IsAt(other.extent, other.data_at()); }
  // The part's bytes lie at a multiple of kPartAlign in the payload of the record of this page.
  void SetPlace(uint32_t new_extent, uint32_t record_page, uint32_t new_data_at) {
    extent = new_extent & 0xfffff;
    page = record_page & 0x3fff;
    at = (new_data_at - (record_page + 1) * kPageBytes) / kPartAlign & 0xffff;
  }
  static uint16_t Fold(uint64_t fingerprint) {
    const uint64_t half = fingerprint ^ fingerprint >> 32;
    return static_cast<uint16_t>(half ^ half >> 16);
  }
  // For the table.
  uint64_t Order() const { return uint64_t{key_high} << 32 | uint64_t{key_low} << 16; }
};
static_assert(sizeof(DiskEntry) == 20 && kExtentBytes / kPageBytes == 1u << 14);
static_assert(kRecordPayloadMax / kPartAlign == 1u << 16 && kPartBytesMax < 1u << 23);

// Finds parts on disk by (hash, coord): 24 bytes a part. Owner: DiskLog. Thread: the shard's.
class DiskIndex {
 public:
  explicit DiskIndex(Random& random) : mix_(random) {}

  // Good until the next Insert or erasure.
  DiskEntry* Find(const BlockHash& hash, PartCoord coord);
  const DiskEntry* Find(const BlockHash& hash, PartCoord coord) const {
    return const_cast<DiskIndex*>(this)->Find(hash, coord);
  }
  // Adds or replaces.
  void Insert(const BlockHash& hash, PartCoord coord, DiskEntry entry);
  // There is an entry.
  void Erase(const BlockHash& hash, PartCoord coord);
  // For damage and operators' commands: all are looked at, as of CellTable.
  size_t pieces() const { return cells_.pieces(); }
  template <typename Condition>
  void EraseIfIn(size_t piece, Condition condition) {
    cells_.EraseIfIn(piece, condition);
  }

  // The number of a layout; kDiskLayoutsMax when that many are known already.
  uint16_t LayoutNumber(const LayoutId& layout);
  bool IsLayout(uint32_t number, const LayoutId& layout) const { return layouts_[number] == layout; }

  size_t size() const { return cells_.size(); }
  uint64_t metadata_bytes() const { return cells_.memory_bytes(); }

 private:
  // Never an empty cell's.
  uint64_t Order(const BlockHash& hash, PartCoord coord) const;

  const PartMixer mix_;
  CellTable<DiskEntry> cells_;
  std::vector<LayoutId> layouts_;
};

}  // namespace cistern
