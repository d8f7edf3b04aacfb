#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
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
  uint64_t key = 0;       // Scratch.
};

// Finds the slot of a part by (hash, coord). Open addressing over 8-byte cells (32 tag bits and a slot); the
// rest of an entry stands in the slot's record and trailer. Erasing shifts back, so there are no tombstones.
// Owner: RamTier. Thread: the shard's. Allocates only when it doubles.
class BlockIndex {
 public:
  // Keys are mixed under a secret of this process, so that no writer can aim at one chain of cells.
  BlockIndex(SlabPool& pool, Random& random);

  // Answers up to kProbeBatchMax questions; their cache misses overlap. Equal 256-bit hash and coord, nothing
  // less.
  void FindBatch(absl::Span<Probe> probes);
  SlotId Find(const BlockHash& hash, uint32_t coord);

  // The slot's trailer holds hash and coord already, and no entry has the same. Sets record.key_upper.
  void Insert(SlotId slot);
  // The slot is in the index.
  void Erase(SlotId slot);

  size_t size() const { return size_; }
  uint64_t metadata_bytes() const { return cells_.size() * sizeof(uint64_t); }

 private:
  // A key's upper half says where its cell belongs (its top bits), its lower half is the cell's tag.
  static constexpr uint32_t kBitsMin = 8;
  static constexpr uint64_t kEmpty = UINT64_MAX;
  uint64_t Key(const BlockHash& hash, uint32_t coord) const;
  size_t Home(uint32_t upper) const { return upper >> shift_; }
  bool Matches(SlotId slot, const BlockHash& hash, uint32_t coord) const;
  void Place(uint32_t upper, uint64_t cell);
  void Grow();

  SlabPool& pool_;
  std::array<uint64_t, 4> secret_;
  uint32_t shift_ = 32 - kBitsMin;
  size_t mask_ = 0;
  size_t size_ = 0;
  std::vector<uint64_t> cells_;
};

}  // namespace cistern
