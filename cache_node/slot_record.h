#pragma once

#include <cstdint>

namespace cistern {

// A slot of one shard's arena: slab number and place in the slab. Stays the same until the slab gets another
// slot size.
using SlotId = uint32_t;
inline constexpr SlotId kNoSlot = UINT32_MAX;
inline constexpr uint32_t kSlotIndexBits = 12;
inline constexpr uint32_t kSlotsPerSlabMax = 1u << kSlotIndexBits;  // 16 MiB slab / 4 KiB stride.
inline constexpr uint32_t kSlabsMax = (1u << (32 - kSlotIndexBits)) - 1;

enum class SlotState : uint8_t {
  kFree = 0,
  kWriting = 1,  // Reserved for a put: in no index, odd generation.
  kVisible = 2,  // In the index.
  kDoomed = 3,   // Left the index while leased; freed with the last lease.
};

// What a node keeps in its own memory for each slot. Hash, fingerprint, coordinate, checksum and generation
// stand in the slot's trailer (SlotTrailer), which nobody but the node can write; together they are the block
// index's entry.
struct SlotRecord {
  uint32_t key = 0;          // Of the index: of a keyed mix of (hash, coord).
  uint32_t length : 23 = 0;  // Part bytes.
  uint32_t holder : 9 = 0;   // HolderId.
  uint32_t tick = 0;         // Coarse time of the last use (RamTier).
  uint32_t expires = 0;      // Coarse time of its end, 0: none.
  uint16_t leases = 0;
  uint16_t layout : 12 = 0;  // Index into the LayoutTable.
  uint16_t state_bits : 2 = 0;
  uint16_t tail : 1 = 0;        // Part of a tail (TailTable).
  uint16_t goes_first : 1 = 0;  // Stranded, or of a tail that has a newer one: evicted before all else.

  SlotState state() const { return static_cast<SlotState>(state_bits); }
  void set_state(SlotState state) { state_bits = static_cast<uint16_t>(state) & 3; }
  // While free, `key` links to the next free slot of the slab.
  uint32_t next_free() const { return key; }
  void set_next_free(uint32_t index) { key = index; }
};
inline constexpr uint32_t kLengthMask = (1u << 23) - 1;
inline constexpr uint32_t kHolderMask = (1u << 9) - 1;
static_assert(sizeof(SlotRecord) == 20);

}  // namespace cistern
