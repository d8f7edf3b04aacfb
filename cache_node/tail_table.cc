#include "cache_node/tail_table.h"

namespace cistern {

bool TailTable::Add(const BlockHash& block, SlotId slot, uint32_t wanted, bool junction) {
  Tail& tail = tails_[block];
  if (tail.slots.empty()) tail.wanted = wanted;
  if (tail.wanted != wanted || tail.whole()) return false;
  tail.junction |= junction;
  tail.slots.push_back(slot);
  return true;
}

std::vector<SlotId> TailTable::Take(const BlockHash& block) {
  Tail* const tail = tails_.Find(block);
  if (tail == nullptr) return {};
  std::vector<SlotId> slots = std::move(tail->slots);
  tails_.Erase(block);
  return slots;
}

absl::Span<const SlotId> TailTable::Supersede(const BlockHash& block, uint64_t successor) {
  Tail* const known = tails_.Find(block);
  if (known == nullptr) return {};
  Tail& tail = *known;
  if (tail.successor == 0) {
    tail.successor = successor;
  } else if (tail.successor != successor) {
    tail.junction = true;
  }
  if (tail.junction) return {};
  return tail.slots;
}

}  // namespace cistern
