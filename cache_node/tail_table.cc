#include "cache_node/tail_table.h"

namespace cistern {

const TailTable::Tail* TailTable::Find(const BlockHash& block) const {
  const auto at = tails_.find(block);
  return at == tails_.end() ? nullptr : &at->second;
}

bool TailTable::Add(const BlockHash& block, SlotId slot, uint32_t wanted, bool junction) {
  Tail& tail = tails_[block];
  if (tail.slots.empty()) tail.wanted = wanted;
  if (tail.wanted != wanted || tail.whole()) return false;
  tail.junction |= junction;
  tail.slots.push_back(slot);
  return true;
}

std::vector<SlotId> TailTable::Take(const BlockHash& block) {
  const auto at = tails_.find(block);
  if (at == tails_.end()) return {};
  std::vector<SlotId> slots = std::move(at->second.slots);
  tails_.erase(at);
  return slots;
}

absl::Span<const SlotId> TailTable::Supersede(const BlockHash& block, uint64_t successor) {
  const auto at = tails_.find(block);
  if (at == tails_.end()) return {};
  Tail& tail = at->second;
  if (tail.successor == 0) {
    tail.successor = successor;
  } else if (tail.successor != successor) {
    tail.junction = true;
  }
  if (tail.junction) return {};
  return tail.slots;
}

}  // namespace cistern
