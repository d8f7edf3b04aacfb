#include "core/eviction/replay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/check.h"
#include "core/eviction_policy.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Slots and who is in them. Blocks are renumbered densely, so tables are vectors.
class Pool {
 public:
  Pool(EvictionPolicy& policy, uint32_t capacity, uint32_t blocks)
      : policy_(policy),
        is_leased_(blocks),
        slot_of_(blocks, kNone),
        parent_(blocks, kNone),
        children_(blocks),
        block_in_(capacity, kNone) {
    for (uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot - 1);
  }

  void Request(const std::vector<uint32_t>& chain, ReplayFlow flow, ReplayScore& score) {
    size_t hit = 0;
    while (hit < chain.size() && slot_of_[chain[hit]] != kNone) ++hit;
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (size_t i = 1; i < chain.size(); ++i) parent_[chain[i]] = chain[i - 1];
    if (flow == ReplayFlow::kNode) return NodeRequest(chain, hit, score);
    for (size_t i = chain.size(); i-- > 0;) {
      if (slot_of_[chain[i]] != kNone) {
        policy_.Touch(slot_of_[chain[i]]);
      } else if (!free_.empty() || Evict(score)) {
        Insert(chain, i);
      }
    }
  }

 private:
  void NodeRequest(const std::vector<uint32_t>& chain, size_t hit, ReplayScore& score) {
    for (size_t i = hit; i-- > 0;) policy_.Touch(slot_of_[chain[i]]);
    leased_ = {chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(hit)};
    for (const uint32_t block : leased_) is_leased_[block] = true;
    // Blocks behind the first missing one may be here too; the offer says so and touches them.
    std::vector<size_t> missing;
    for (size_t i = chain.size(); i-- > hit;) {
      if (slot_of_[chain[i]] != kNone) policy_.Touch(slot_of_[chain[i]]);
    }
    for (size_t i = hit; i < chain.size(); ++i) {
      if (slot_of_[chain[i]] == kNone) missing.push_back(i);
    }
    size_t room = 0;  // Shallow blocks first, as far as room can be made.
    while (room < missing.size() && (free_.size() > room || Evict(score))) ++room;
    while (room-- > 0) Insert(chain, missing[room]);
    for (const uint32_t block : leased_) is_leased_[block] = false;
    for (size_t i = hit; i-- > 0;) policy_.Refresh(slot_of_[chain[i]]);
  }

  void Insert(const std::vector<uint32_t>& chain, size_t i) {
    const uint32_t block = chain[i];
    slot_of_[block] = free_.back();
    free_.pop_back();
    block_in_[slot_of_[block]] = block;
    if (i > 0) ++children_[chain[i - 1]];
    policy_.Insert(slot_of_[block], block, static_cast<uint32_t>(i));
  }

  bool Evict(ReplayScore& score) {
    const std::optional<EntryId> victim =
        policy_.Victim([this](EntryId slot) { return !is_leased_[block_in_[slot]]; });
    if (!victim.has_value()) return false;
    policy_.Evicted(*victim);
    const uint32_t block = std::exchange(block_in_[*victim], kNone);
    CISTERN_CHECK(block != kNone);
    slot_of_[block] = kNone;
    if (children_[block] > 0) ++score.stranding_evictions;
    if (parent_[block] != kNone) --children_[parent_[block]];
    free_.push_back(*victim);
    return true;
  }

  EvictionPolicy& policy_;
  std::vector<uint32_t> leased_;    // Blocks of the request at hand.
  std::vector<bool> is_leased_;     // By block.
  std::vector<uint32_t> slot_of_;   // By block.
  std::vector<uint32_t> parent_;    // By block.
  std::vector<uint32_t> children_;  // By block: how many of its children are here.
  std::vector<uint32_t> block_in_;  // By slot.
  std::vector<uint32_t> free_;
};

}  // namespace

uint32_t CountUnique(const TraceIds& requests) {
  std::vector<uint32_t> all;
  for (const std::vector<uint32_t>& chain : requests) all.insert(all.end(), chain.begin(), chain.end());
  std::sort(all.begin(), all.end());
  return static_cast<uint32_t>(std::unique(all.begin(), all.end()) - all.begin());
}

absl::StatusOr<ReplayScore> ReplayPolicy(std::string_view policy, const TraceIds& requests, uint32_t capacity,
                                         ReplayFlow flow) {
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<EvictionPolicy> made, MakeEvictionPolicy(policy, capacity));
  absl::flat_hash_map<uint32_t, uint32_t> dense;
  TraceIds renumbered = requests;
  for (std::vector<uint32_t>& chain : renumbered) {
    for (uint32_t& id : chain) id = dense.emplace(id, static_cast<uint32_t>(dense.size())).first->second;
  }
  Pool pool(*made, capacity, static_cast<uint32_t>(dense.size()));
  ReplayScore score;
  for (const std::vector<uint32_t>& chain : renumbered) pool.Request(chain, flow, score);
  return score;
}

}  // namespace cistern
