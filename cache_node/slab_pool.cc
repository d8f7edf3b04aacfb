#include "cache_node/slab_pool.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {
namespace {

constexpr uint64_t kSlabBytesSmall = 4u << 20;
constexpr uint64_t kSlabBytesLarge = 16u << 20;
constexpr uint64_t kLargeFrom = 512u << 20;

uint64_t LoadGeneration(const SlotTrailer& trailer) {
  return __atomic_load_n(&trailer.generation, __ATOMIC_RELAXED);
}

}  // namespace

uint64_t SlabPool::SlabBytes(uint64_t ram_bytes) {
  return ram_bytes < kLargeFrom ? kSlabBytesSmall : kSlabBytesLarge;
}

uint64_t SlabPool::RegionBytes(uint64_t ram_bytes, uint32_t stride_min) {
  const uint64_t slab = SlabBytes(ram_bytes);
  const uint64_t payload = PayloadBytes(ram_bytes);
  return payload + (payload + slab - 1) / slab * (slab / stride_min) * sizeof(SlotTrailer);
}

uint64_t SlabPool::PayloadBytes(uint64_t ram_bytes) {
  return std::min(ram_bytes, kSlabsMax * SlabBytes(ram_bytes)) / kSlotStrideMin * kSlotStrideMin;
}

uint32_t SlabPool::Stride(uint32_t part_bytes, uint32_t stride_min) {
  return std::max(stride_min, (part_bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign);
}

SlabPool::SlabPool(MemoryRegion& region, uint64_t ram_bytes, uint32_t stride_min)
    : region_(region),
      slab_bytes_(SlabBytes(ram_bytes)),
      stride_min_(stride_min),
      trailers_per_slab_(slab_bytes_ / stride_min),
      trailers_at_(PayloadBytes(ram_bytes)) {
  CISTERN_CHECK(region.bytes() >= RegionBytes(ram_bytes, stride_min));
  CISTERN_CHECK(trailers_per_slab_ <= kSlotsPerSlabMax);
  const auto slabs = static_cast<uint32_t>((trailers_at_ + slab_bytes_ - 1) / slab_bytes_);
  slabs_.resize(slabs);
  trailers_ = reinterpret_cast<SlotTrailer*>(region.data() + trailers_at_);
  free_slabs_.reserve(slabs);
  for (uint32_t i = slabs; i-- > 0;) free_slabs_.push_back(i);
  classes_.reserve(kSizeClassesMax);
}

ClassId SlabPool::ClassFor(uint32_t part_bytes) {
  const uint32_t stride = Stride(part_bytes, stride_min_);
  ClassId unused = kNoClass;
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i].stride == stride) return static_cast<ClassId>(i);
    if (classes_[i].slab_count == 0) unused = static_cast<ClassId>(i);
  }
  if (classes_.size() < kSizeClassesMax) {
    unused = static_cast<ClassId>(classes_.size());
    classes_.emplace_back();
  }
  if (unused == kNoClass) return kNoClass;
  SizeClass& c = classes_[unused];
  c.stride = stride;
  c.slots_per_slab = static_cast<uint32_t>(slab_bytes_ / stride);
  return unused;
}

ClassId SlabPool::FindClass(uint32_t part_bytes) const {
  const uint32_t stride = Stride(part_bytes, stride_min_);
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i].stride == stride) return static_cast<ClassId>(i);
  }
  return kNoClass;
}

SlotId SlabPool::TryTake(ClassId size_class) {
  SizeClass& c = classes_[size_class];
  if (c.room_head == kNone) {
    // The last slab may be too short for this size; no other is.
    size_t pick = free_slabs_.size();
    while (pick > 0 && SlotsIn(free_slabs_[pick - 1], size_class) == 0) --pick;
    if (pick == 0) return kNoSlot;
    const uint32_t fresh = free_slabs_[pick - 1];
    free_slabs_.erase(free_slabs_.begin() + static_cast<ptrdiff_t>(pick) - 1);
    Assign(fresh, size_class);
  }
  const uint32_t slab_index = c.room_head;
  Slab& slab = slabs_[slab_index];
  uint32_t index = slab.free_head;
  if (index != kSlotsPerSlabMax) {
    slab.free_head = slab.records[index].next_free();
  } else {
    index = slab.touched++;
  }
  ++slab.used;
  ++slab.busy;
  if (slab.used == slab.slots) RemoveRoom(slab_index);
  const SlotId slot = slab_index << kSlotIndexBits | index;
  slab.records[index] = SlotRecord{};
  slab.records[index].set_state(SlotState::kWriting);
  SlotTrailer& trailer = this->trailer(slot);
  if (LoadGeneration(trailer) == 0) __atomic_store_n(&trailer.generation, uint64_t{1}, __ATOMIC_RELAXED);
  // A reader whose lease has ended must see the odd generation before the first new byte.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return slot;
}

void SlabPool::Free(SlotId slot) {
  const uint32_t slab_index = slot >> kSlotIndexBits;
  Slab& slab = slabs_[slab_index];
  SlotRecord& record = slab.records[slot & kIndexMask];
  CISTERN_CHECK(record.state() != SlotState::kFree && record.leases == 0);
  if (record.state() != SlotState::kVisible) --slab.busy;
  SlotTrailer& trailer = this->trailer(slot);
  __atomic_store_n(&trailer.generation, (LoadGeneration(trailer) + 1) | 1, __ATOMIC_RELEASE);
  record = SlotRecord{};
  record.set_next_free(slab.free_head);
  slab.free_head = slot & kIndexMask;
  if (--slab.used == 0) {
    Unassign(slab_index);
  } else if (!slab.in_room_list) {
    AddRoom(slab_index);
  }
}

void SlabPool::Assign(uint32_t slab_index, ClassId size_class) {
  SizeClass& c = classes_[size_class];
  Slab& slab = slabs_[slab_index];
  slab.size_class = size_class;
  slab.slots = SlotsIn(slab_index, size_class);
  slab.touched = 0;
  slab.free_head = kSlotsPerSlabMax;
  slab.tick_sum = 0;
  if (slab.record_capacity < slab.slots) {
    metadata_bytes_ += (slab.slots - slab.record_capacity) * (sizeof(SlotRecord) + sizeof(SlotTrailer));
    slab.records = std::make_unique<SlotRecord[]>(slab.slots);
    slab.record_capacity = slab.slots;
  }
  if (c.free_ordinals.empty()) {
    slab.ordinal = static_cast<uint32_t>(c.slabs.size());
    c.slabs.push_back(slab_index);
  } else {
    slab.ordinal = c.free_ordinals.back();
    c.free_ordinals.pop_back();
    c.slabs[slab.ordinal] = slab_index;
  }
  ++c.slab_count;
  AddRoom(slab_index);
}

void SlabPool::Unassign(uint32_t slab_index) {
  Slab& slab = slabs_[slab_index];
  CISTERN_CHECK(slab.busy == 0);
  if (slab.in_room_list) RemoveRoom(slab_index);
  SizeClass& c = classes_[slab.size_class];
  c.slabs[slab.ordinal] = kNone;
  c.free_ordinals.push_back(slab.ordinal);
  --c.slab_count;
  slab.size_class = kNoClass;
  free_slabs_.push_back(slab_index);
}

void SlabPool::AddRoom(uint32_t slab_index) {
  Slab& slab = slabs_[slab_index];
  SizeClass& c = classes_[slab.size_class];
  slab.previous = kNone;
  slab.next = c.room_head;
  if (c.room_head != kNone) slabs_[c.room_head].previous = slab_index;
  c.room_head = slab_index;
  slab.in_room_list = true;
}

void SlabPool::RemoveRoom(uint32_t slab_index) {
  Slab& slab = slabs_[slab_index];
  SizeClass& c = classes_[slab.size_class];
  (slab.previous == kNone ? c.room_head : slabs_[slab.previous].next) = slab.next;
  if (slab.next != kNone) slabs_[slab.next].previous = slab.previous;
  slab.in_room_list = false;
}

}  // namespace cistern
