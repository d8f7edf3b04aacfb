#include "core/eviction/replay.h"

#include <memory>
#include <utility>

#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// A block's key as a node has it: bits of a hash.
uint64_t KeyOf(uint32_t block) { return (uint64_t{block} + 1) * 0x9e3779b97f4a7c15; }

PolicyTick TickOf(int64_t time_ms) { return static_cast<PolicyTick>(time_ms * 1'000'000 >> 23); }

// Slots and who is in them. Blocks are numbered densely, so tables are vectors.
class Pool {
 public:
  Pool(EvictionPolicy& policy, uint32_t capacity, uint32_t blocks)
      : policy_(policy),
        capacity_(capacity),
        is_leased_(blocks),
        slot_of_(blocks, kNone),
        parent_(blocks, kNone),
        children_(blocks) {}

  void Request(const std::vector<uint32_t>& chain, PolicyTick tick, ReplayFlow flow, ReplayScore& score) {
    size_t hit = 0;
    while (hit < chain.size() && slot_of_[chain[hit]] != kNone) ++hit;
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (size_t i = 1; i < chain.size(); ++i) parent_[chain[i]] = chain[i - 1];
    here_.clear();
    missing_.clear();
    for (size_t i = 0; i < hit; ++i) here_.push_back(slot_of_[chain[i]]);
    for (size_t i = hit; i < chain.size(); ++i) missing_.push_back(KeyOf(chain[i]));
    use_ = policy_.Begin({.tick = tick, .here = here_, .missing = missing_});
    if (flow == ReplayFlow::kNode) return NodeRequest(chain, hit, score);
    for (size_t i = chain.size(); i-- > 0;) {
      if (slot_of_[chain[i]] != kNone) {
        policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
      } else {
        Insert(chain, i);
      }
    }
    while (used_ > capacity_ && Evict(score)) {
    }
  }

 private:
  void NodeRequest(const std::vector<uint32_t>& chain, size_t hit, ReplayScore& score) {
    for (size_t i = hit; i-- > 0;) policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
    for (size_t i = 0; i < hit; ++i) is_leased_[chain[i]] = true;
    // Blocks behind the first missing one may be here too; the offer says so and touches them.
    std::vector<size_t> missing;
    for (size_t i = chain.size(); i-- > hit;) {
      if (slot_of_[chain[i]] != kNone) policy_.Touch(use_, slot_of_[chain[i]], static_cast<uint32_t>(i));
    }
    for (size_t i = hit; i < chain.size(); ++i) {
      if (slot_of_[chain[i]] == kNone) missing.push_back(i);
    }
    size_t room = 0;  // Shallow blocks first, as far as room can be made.
    while (room < missing.size() && (used_ + room < capacity_ || Evict(score))) ++room;
    while (room-- > 0) Insert(chain, missing[room]);
    for (size_t i = 0; i < hit; ++i) is_leased_[chain[i]] = false;
    for (size_t i = hit; i-- > 0;) policy_.Refresh(slot_of_[chain[i]]);
  }

  void Insert(const std::vector<uint32_t>& chain, size_t i) {
    const uint32_t block = chain[i];
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(block_in_.size()));
      block_in_.push_back(kNone);
    }
    slot_of_[block] = free_.back();
    free_.pop_back();
    ++used_;
    block_in_[slot_of_[block]] = block;
    if (i > 0) ++children_[chain[i - 1]];
    policy_.Insert(use_, slot_of_[block], {.key = KeyOf(block), .depth = static_cast<uint32_t>(i)});
  }

  bool Evict(ReplayScore& score) {
    const std::optional<EntryId> victim =
        policy_.Victim([this](EntryId slot) { return !is_leased_[block_in_[slot]]; });
    if (!victim.has_value()) return false;
    const uint32_t block = std::exchange(block_in_[*victim], kNone);
    CISTERN_CHECK(block != kNone);
    policy_.Evicted(*victim, KeyOf(block));
    slot_of_[block] = kNone;
    if (children_[block] > 0) ++score.stranding_evictions;
    if (parent_[block] != kNone) --children_[parent_[block]];
    free_.push_back(*victim);
    --used_;
    return true;
  }

  EvictionPolicy& policy_;
  const uint32_t capacity_;
  uint32_t used_ = 0;
  UseId use_ = 0;
  std::vector<EntryId> here_;       // Of the request at hand.
  std::vector<uint64_t> missing_;   // Of it, keys.
  std::vector<bool> is_leased_;     // By block.
  std::vector<uint32_t> slot_of_;   // By block.
  std::vector<uint32_t> parent_;    // By block.
  std::vector<uint32_t> children_;  // By block: how many of its children are here.
  std::vector<uint32_t> block_in_;  // By slot.
  std::vector<uint32_t> free_;
};

}  // namespace

absl::StatusOr<ReplayScore> ReplayPolicy(std::string_view policy, const ReplayTrace& trace, uint32_t capacity,
                                         ReplayFlow flow) {
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<EvictionPolicy> made, MakeEvictionPolicy(policy, capacity));
  Pool pool(*made, capacity, trace.unique);
  ReplayScore score;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    pool.Request(trace.requests[i], TickOf(trace.times_ms[i]), flow, score);
  }
  return score;
}

}  // namespace cistern
