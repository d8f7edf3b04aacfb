#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "cache_node/cell_table.h"
#include "cache_node/part_mixer.h"
#include "cache_node/slab_pool.h"
#include "cache_node/slot_record.h"
#include "core/ids.h"
#include "core/random.h"

namespace cistern {

inline constexpr size_t kProbeBatchMax = 64;

// One question to the index. The asker fills hash and coord.
struct Probe {
  const BlockHash* hash = nullptr;
  uint32_t coord = 0;     // PartCoord::Packed
  SlotId slot = kNoSlot;  // Answer.
  uint32_t key = 0;       // Scratch.
};

// Finds the slot of a part by (hash, coord). Cells of 8 bytes (32 bits of key and a slot), 9 to 10 bytes a
// part; the rest of an entry stands in the slot's record and trailer. Owner: RamTier. Thread: the shard's.
// Allocates only when it grows.
class BlockIndex {
 public:
  BlockIndex(SlabPool& pool, Random& random) : pool_(pool), mix_(random) {}

  // Answers up to kProbeBatchMax questions; their cache misses overlap. Equal 256-bit hash and coord, nothing
  // less.
  void FindBatch(absl::Span<Probe> probes);
  SlotId Find(const BlockHash& hash, uint32_t coord);

  // The slot's trailer holds hash and coord already, and no entry has the same. Sets record.key.
  void Insert(SlotId slot);
  // The slot is in the index.
  void Erase(SlotId slot);

  size_t size() const { return cells_.size(); }
  uint64_t metadata_bytes() const { return cells_.memory_bytes(); }

 private:
  struct Cell {
    SlotId slot = kNoSlot;
    uint32_t key = UINT32_MAX;
    uint64_t Order() const { return uint64_t{key} << 32 | slot; }
  };
  uint32_t Key(const BlockHash& hash, uint32_t coord) const {
    return static_cast<uint32_t>(mix_(hash, coord) >> 32);
  }
  bool HasKey(const Cell& cell, uint32_t key) const { return cell.key == key && cell.slot != kNoSlot; }
  bool Matches(SlotId slot, const BlockHash& hash, uint32_t coord) const;

  SlabPool& pool_;
  const PartMixer mix_;
  CellTable<Cell> cells_;
};

}  // namespace cistern
