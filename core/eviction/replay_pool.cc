#include "core/eviction/replay_pool.h"

#include <utility>

#include "core/check.h"

namespace cistern {

// Tells the policy of a request from block `from` of the chain on; returns the first one that is not here. An
// offer that lacks first what its plan lacked first belongs to that.
size_t ReplayPool::Begin(absl::Span<const uint32_t> chain, size_t from, PolicyTick tick) {
  size_t first_missing = from;
  here_.clear();
  missing_.clear();
  for (; first_missing < chain.size() && Has(chain[first_missing]); ++first_missing)
    here_.push_back(slot_of_[chain[first_missing]]);
  for (size_t i = first_missing; i < chain.size(); ++i) missing_.push_back(KeyOf(chain[i]));
  const uint64_t lacks = missing_.empty() ? 0 : missing_[0];
  if (!is_planned_ || lacks == 0 || lacks != lacked_)
    use_ = policy_.Begin({.tick = tick, .here = here_, .missing = missing_});
  lacked_ = lacks;
  return first_missing;
}

void ReplayPool::Plan(absl::Span<const uint32_t> chain, PolicyTick tick) {
  for (size_t i = 1; i < chain.size(); ++i) parent_[chain[i]] = chain[i - 1];
  const size_t hit = Begin(chain, 0, tick);
  for (size_t i = hit; i-- > 0;) policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
  for (size_t i = 0; i < hit; ++i) is_leased_[slot_of_[chain[i]]] = true;
  leased_.assign(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(hit));
  is_planned_ = true;
}

void ReplayPool::Offer(absl::Span<const uint32_t> chain, size_t from, PolicyTick tick) {
  if (from == chain.size()) return;
  Begin(chain, from, tick);
  for (size_t i = chain.size(); i-- > from;) {
    if (Has(chain[i])) policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
  }
  std::vector<size_t> missing;
  for (size_t i = from; i < chain.size(); ++i) {
    if (!Has(chain[i])) missing.push_back(i);
  }
  size_t room = 0;
  while (room < missing.size() && (used_ + room < capacity_ || Evict())) ++room;
  while (room-- > 0) Insert(chain, missing[room]);
}

void ReplayPool::Release() {
  for (const uint32_t block : leased_) is_leased_[slot_of_[block]] = false;
  for (size_t i = leased_.size(); i-- > 0;) policy_.Refresh(slot_of_[leased_[i]]);
  leased_.clear();
  is_planned_ = false;
}

void ReplayPool::UseAll(absl::Span<const uint32_t> chain, PolicyTick tick) {
  for (size_t i = 1; i < chain.size(); ++i) parent_[chain[i]] = chain[i - 1];
  Begin(chain, 0, tick);
  for (size_t i = chain.size(); i-- > 0;) {
    if (Has(chain[i])) {
      policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
    } else {
      Insert(chain, i);
    }
  }
  while (used_ > capacity_ && Evict()) {
  }
}

void ReplayPool::Insert(absl::Span<const uint32_t> chain, size_t i) {
  const uint32_t block = chain[i];
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(block_in_.size()));
    block_in_.push_back(kNone);
    is_leased_.push_back(false);
  }
  slot_of_[block] = free_.back();
  free_.pop_back();
  ++used_;
  block_in_[slot_of_[block]] = block;
  if (i > 0) ++children_[chain[i - 1]];
  policy_.Insert(use_, slot_of_[block], {.key = KeyOf(block), .depth = static_cast<uint32_t>(i)});
}

bool ReplayPool::Evict() {
  const std::optional<EntryId> victim = policy_.Victim([this](EntryId slot) { return !is_leased_[slot]; });
  if (!victim.has_value()) return false;
  const uint32_t block = std::exchange(block_in_[*victim], kNone);
  CISTERN_CHECK(block != kNone);
  policy_.Evicted(*victim, KeyOf(block));
  slot_of_[block] = kNone;
  if (children_[block] > 0) ++stranding_evictions_;
  if (parent_[block] != kNone) --children_[parent_[block]];
  free_.push_back(*victim);
  --used_;
  return true;
}

}  // namespace cistern
