#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/eviction_policy.h"

namespace cistern {

// Slots of one simulated pool and who is in them; calls its policy in the order in which a node does. Blocks
// are numbered densely, so tables are vectors. Owned by a replay; one thread.
class ReplayPool {
 public:
  ReplayPool(EvictionPolicy& policy, uint32_t capacity, uint32_t blocks)
      : policy_(policy),
        capacity_(capacity),
        slot_of_(blocks, kNone),
        parent_(blocks, kNone),
        children_(blocks) {}

  bool Has(uint32_t block) const { return slot_of_[block] != kNone; }
  // A request's blocks that are this pool's, in chain order. Leading ones that are here are touched and
  // leased.
  void Plan(absl::Span<const uint32_t> chain, PolicyTick tick);
  // What a writer has of it from `from` on: what is here is touched, room is made for the rest, shallow ones
  // first.
  void Offer(absl::Span<const uint32_t> chain, size_t from, PolicyTick tick);
  // Ends the plan's leases.
  void Release();
  // In place of the three, as comparisons in print have it: all is touched or inserted, the deepest first,
  // then what is too much goes.
  void UseAll(absl::Span<const uint32_t> chain, PolicyTick tick);

  uint64_t stranding_evictions() const { return stranding_evictions_; }
  // A block's key as a node has it: bits of a hash.
  static uint64_t KeyOf(uint32_t block) { return (uint64_t{block} + 1) * 0x9e3779b97f4a7c15; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  size_t Begin(absl::Span<const uint32_t> chain, size_t from, PolicyTick tick);
  void Insert(absl::Span<const uint32_t> chain, size_t i);
  bool Evict();

  EvictionPolicy& policy_;
  const uint32_t capacity_;
  uint32_t used_ = 0;
  UseId use_ = 0;  // Of the request at hand.
  bool is_planned_ = false;
  uint64_t lacked_ = 0;             // The first key that it lacked; or 0.
  std::vector<EntryId> here_;       // Of the request at hand.
  std::vector<uint64_t> missing_;   // Of it, keys.
  std::vector<uint32_t> leased_;    // Blocks of the plan.
  std::vector<bool> is_leased_;     // By slot.
  std::vector<uint32_t> slot_of_;   // By block.
  std::vector<uint32_t> parent_;    // By block.
  std::vector<uint32_t> children_;  // By block: how many of its children are here.
  std::vector<uint32_t> block_in_;  // By slot.
  std::vector<uint32_t> free_;
  uint64_t stranding_evictions_ = 0;
};

}  // namespace cistern
