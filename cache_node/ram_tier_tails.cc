// Tails, and what goes first when room is needed.
#include <cstring>

#include "cache_node/ram_tier.h"
#include "core/check.h"

namespace cistern {
namespace {

// Candidates remembered for each size. What is marked beyond them goes in the policy's turn.
constexpr size_t kFirstMax = 65536;

}  // namespace

BlockHash RamTier::HashOf(const SlotTrailer& trailer) {
  BlockHash hash;
  std::memcpy(hash.bytes.data(), trailer.hash, hash.bytes.size());
  return hash;
}

void RamTier::Remove(SlotId slot, bool evicted) {
  const BlockHash hash = HashOf(pool_.trailer(slot));
  const TailTable::Tail* tail = tails_.empty() ? nullptr : tails_.Find(hash);
  if (evicted && eviction_hook_) {
    if (tail != nullptr && pool_.record(tail->slots.front()).goes_first == 0) eviction_hook_(tail->slots);
    if (pool_.record(slot).tail == 0) eviction_hook_(absl::MakeConstSpan(&slot, 1));
  }
  if (tail != nullptr) {
    for (const SlotId part : tails_.Take(hash)) {
      if (part != slot) RemoveOne(part, evicted);
    }
  }
  RemoveOne(slot, evicted);
}

void RamTier::MarkFirst(SlotId slot) {
  SlotRecord& record = pool_.record(slot);
  if (record.state() != SlotState::kVisible || record.goes_first != 0) return;
  record.goes_first = 1;
  (record.tail != 0 ? superseded_bytes_ : stranded_bytes_) += record.length;
  SetTick(slot, 0);  // Its slab looks old, too.
  std::vector<SlotId>& first = classes_[pool_.slab_of(slot).size_class].first;
  if (first.size() < kFirstMax) first.push_back(slot);
}

void RamTier::ClearFirst(SlotId slot) {
  SlotRecord& record = pool_.record(slot);
  record.goes_first = 0;
  (record.tail != 0 ? superseded_bytes_ : stranded_bytes_) -= record.length;
}

// A slot of this size that goes first and may go; kNoSlot when there is none.
SlotId RamTier::TakeFirst(ClassState& state) {
  while (!state.first.empty()) {
    const SlotId slot = state.first.back();
    state.first.pop_back();
    const Slab& slab = pool_.slab_of(slot);
    // The slab may have got another size since.
    if (slab.size_class == kNoClass || &classes_[slab.size_class] != &state) continue;
    if ((slot & (kSlotsPerSlabMax - 1)) >= slab.touched) continue;
    const SlotRecord& record = pool_.record(slot);
    if (record.state() == SlotState::kVisible && record.goes_first != 0 && MayEvict(slot, /*soft_pins=*/true))
      return slot;
  }
  return kNoSlot;
}

absl::Span<const SlotId> RamTier::TailSlots(const BlockHash& block) const {
  const TailTable::Tail* tail = tails_.Find(block);
  return tail == nullptr ? absl::Span<const SlotId>() : absl::MakeConstSpan(tail->slots);
}

TailMark RamTier::TailMarkOf(SlotId slot) const {
  if (pool_.record(slot).tail == 0) return {};
  const TailTable::Tail* tail = tails_.Find(HashOf(pool_.trailer(slot)));
  CISTERN_CHECK(tail != nullptr);
  return {.parts = tail->wanted, .junction = tail->junction};
}

void RamTier::SupersedeTail(const BlockHash& block, uint64_t successor) {
  for (const SlotId slot : tails_.Supersede(block, successor)) MarkFirst(slot);
}

void RamTier::Strand(SlotId slot) {
  MarkFirst(slot);
  if (tails_.empty()) return;
  const TailTable::Tail* tail = tails_.Find(HashOf(pool_.trailer(slot)));
  if (tail == nullptr) return;
  for (const SlotId part : tail->slots) MarkFirst(part);
}

}  // namespace cistern
