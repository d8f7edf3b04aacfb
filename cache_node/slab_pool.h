#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache_node/slot_record.h"
#include "core/arena.h"
#include "core/eviction_policy.h"

namespace cistern {

inline constexpr uint32_t kSlotStrideMin =
    4096;  // Smaller parts take this much: it bounds slots, trailers and records.
inline constexpr uint32_t kSlotAlign = 64;
inline constexpr uint32_t kSizeClassesMax = 64;  // Slot sizes with slabs at one time.

using ClassId = uint16_t;
inline constexpr ClassId kNoClass = UINT16_MAX;

// One slab. `busy` counts slots that are leased, doomed or being written: a slab with any cannot move to
// another size.
struct Slab {
  ClassId size_class = kNoClass;
  uint32_t ordinal = 0;    // Place among the slabs of its class; makes ids for the policy dense.
  uint32_t slots = 0;      // Of its size, that it holds.
  uint32_t used = 0;       // Slots taken.
  uint32_t touched = 0;    // Slots [0, touched) have been taken at least once since the slab got its size.
  uint32_t free_head = 0;  // First free slot below `touched`, kSlotsPerSlabMax if none.
  uint32_t busy = 0;
  uint32_t pinned = 0;                                // Visible slots with a pin: it cannot move either.
  uint64_t tick_sum = 0;                              // Sum of the ticks of its used slots (RamTier).
  uint32_t previous = UINT32_MAX, next = UINT32_MAX;  // Slabs of the class with room.
  bool in_room_list = false;
  uint32_t record_capacity = 0;
  std::unique_ptr<SlotRecord[]> records;
};

// An arena cut into slabs, each with one slot size at a time. Gives out and takes back slots; knows nothing
// of keys. Owner: RamTier. Thread: the shard's. Allocates only when a slab gets a size (records), never per
// slot.
//
// The last slab is as short as the RAM given leaves it, so that small nodes lose nothing to rounding; sizes
// above it do without it. The region holds the slabs, then one SlotTrailer per possible slot (slab_bytes / 4
// KiB each), so strides are exactly the part sizes. A trailer's generation only grows, over size changes too:
// it is odd while the slot is free or being written.
class SlabPool {
 public:
  // 4 MiB below 512 MiB of RAM, else 16 MiB: large nodes waste little on odd sizes.
  static uint64_t SlabBytes(uint64_t ram_bytes);
  // What of `ram_bytes` can hold payload: whole multiples of kSlotStrideMin.
  static uint64_t PayloadBytes(uint64_t ram_bytes);
  // What the arena's region needs for that payload: slabs and their trailers.
  // stride_min: the smallest slot; a page pool of an engine has smaller pages than nodes have parts.
  static uint64_t RegionBytes(uint64_t ram_bytes, uint32_t stride_min = kSlotStrideMin);
  static uint32_t Stride(uint32_t part_bytes, uint32_t stride_min = kSlotStrideMin);

  // region: RegionBytes(ram_bytes, stride_min) long and zeroed; must outlive the pool. stride_min: at least
  // SlabBytes / kSlotsPerSlabMax.
  SlabPool(MemoryRegion& region, uint64_t ram_bytes, uint32_t stride_min = kSlotStrideMin);
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // The class of parts of this size, made when new. kNoClass when kSizeClassesMax sizes have slabs.
  ClassId ClassFor(uint32_t part_bytes);
  // The same, but kNoClass when there is none yet.
  ClassId FindClass(uint32_t part_bytes) const;
  // A slot of the class from a slab with room or from a free slab; kNoSlot when there is neither.
  // Its state is kWriting and its generation odd.
  SlotId TryTake(ClassId size_class);
  // Gives a slot back; its generation becomes odd. A slab without used slots loses its size.
  void Free(SlotId slot);

  SlotRecord& record(SlotId slot) { return slabs_[slot >> kSlotIndexBits].records[slot & kIndexMask]; }
  const SlotRecord& record(SlotId slot) const {
    return slabs_[slot >> kSlotIndexBits].records[slot & kIndexMask];
  }
  SlotTrailer& trailer(SlotId slot) const { return trailers_[TrailerIndex(slot)]; }
  Slab& slab_of(SlotId slot) { return slabs_[slot >> kSlotIndexBits]; }
  Slab& slab(uint32_t index) { return slabs_[index]; }
  const Slab& slab(uint32_t index) const { return slabs_[index]; }
  std::byte* data(SlotId slot) const { return region_.data() + Offset(slot); }
  uint64_t Offset(SlotId slot) const {
    return (slot >> kSlotIndexBits) * slab_bytes_ +
           uint64_t{slot & kIndexMask} * classes_[slabs_[slot >> kSlotIndexBits].size_class].stride;
  }
  uint64_t TrailerOffset(SlotId slot) const {
    return trailers_at_ + TrailerIndex(slot) * sizeof(SlotTrailer);
  }

  // Ids for the policy of a class: dense, below the class's slab count x slots a slab.
  EntryId PolicyId(SlotId slot) const {
    const Slab& slab = slabs_[slot >> kSlotIndexBits];
    return slab.ordinal * classes_[slab.size_class].slots_per_slab + (slot & kIndexMask);
  }
  SlotId SlotOf(ClassId size_class, EntryId id) const {
    const SizeClass& c = classes_[size_class];
    return c.slabs[id / c.slots_per_slab] << kSlotIndexBits | id % c.slots_per_slab;
  }

  uint32_t stride(ClassId size_class) const { return classes_[size_class].stride; }
  uint32_t slots_per_slab(ClassId size_class) const { return classes_[size_class].slots_per_slab; }
  // Slots of the size that this slab would hold: 0 for a last slab that is too short.
  uint32_t SlotsIn(uint32_t slab_index, ClassId size_class) const {
    const uint64_t bytes = std::min<uint64_t>(slab_bytes_, trailers_at_ - slab_index * slab_bytes_);
    return static_cast<uint32_t>(bytes / classes_[size_class].stride);
  }
  uint32_t class_slabs(ClassId size_class) const { return classes_[size_class].slab_count; }
  uint32_t slab_count() const { return static_cast<uint32_t>(slabs_.size()); }
  uint32_t free_slabs() const { return static_cast<uint32_t>(free_slabs_.size()); }
  uint64_t slab_bytes() const { return slab_bytes_; }
  uint64_t capacity_bytes() const { return trailers_at_; }
  // Records and trailers of slots that slabs have had in use; what the pool's bookkeeping costs in memory.
  uint64_t metadata_bytes() const { return metadata_bytes_; }

 private:
  static constexpr uint32_t kIndexMask = kSlotsPerSlabMax - 1;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct SizeClass {
    uint32_t stride = 0;
    uint32_t slots_per_slab = 0;
    uint32_t slab_count = 0;
    uint32_t room_head = kNone;   // Slabs with a free slot.
    std::vector<uint32_t> slabs;  // By ordinal; kNone where none is.
    std::vector<uint32_t> free_ordinals;
  };

  uint64_t TrailerIndex(SlotId slot) const {
    return (slot >> kSlotIndexBits) * trailers_per_slab_ + (slot & kIndexMask);
  }
  void Assign(uint32_t slab_index, ClassId size_class);
  void Unassign(uint32_t slab_index);
  void AddRoom(uint32_t slab_index);
  void RemoveRoom(uint32_t slab_index);

  MemoryRegion& region_;
  const uint64_t slab_bytes_;
  const uint32_t stride_min_;
  const uint64_t trailers_per_slab_;
  const uint64_t trailers_at_;  // Behind the payload.
  SlotTrailer* trailers_ = nullptr;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;  // Lowest number last, so a young node touches its arena in order.
  std::vector<SizeClass> classes_;
  uint64_t metadata_bytes_ = 0;
};

}  // namespace cistern
