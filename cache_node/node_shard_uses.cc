// What a shard tells its eviction policies of requests.
#include <algorithm>

#include "cache_node/disk/disk_tier.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_shard.h"

namespace cistern {
namespace {

constexpr uint64_t kPromoteUses = 2;  // A run that is used so often goes up to HBM.

}  // namespace

// Tells the eviction policies of a request, with all that it will have to store. Each size of parts has a
// policy of its own, so each of the request's sizes is a use of its own.
void NodeShard::BeginUses(const ChainRequest& request, size_t leading, uint32_t first_missing,
                          bool to_store) {
  const uint32_t blocks = BlocksOfThisShard(request);
  const auto coords = static_cast<uint32_t>(request.coords.size());
  const bool one_size = request.coord_bytes.empty();
  uses_.assign(coords, 0);
  for (uint32_t first = 0; first < coords; ++first) {
    const uint32_t bytes = request.BytesOf(first);
    const auto sized = request.coord_bytes.begin();
    if (first > 0 && (one_size || std::find(sized, sized + first, bytes) != sized + first)) continue;
    absl::Span<const SlotId> here = absl::MakeConstSpan(slots_).first(leading);
    if (!one_size) {
      slots_of_size_.clear();
      for (size_t i = 0; i < leading; ++i) {
        if (request.coord_bytes[slot_pairs_[i] % coords] == bytes) slots_of_size_.push_back(slots_[i]);
      }
      here = slots_of_size_;
    }
    missing_keys_.clear();
    for (uint32_t block = first_missing; block < blocks; ++block) {
      for (uint32_t c = first; c < coords; ++c) {
        if (request.BytesOf(c) != bytes) continue;
        missing_keys_.push_back(RamTier::PolicyKey(request.blocks[block].hash, request.coords[c]));
      }
    }
    // A plan has mostly told of an offer's puts already; else they are a request of their own.
    UseId use = 0;
    if (to_store && !missing_keys_.empty()) use = ram_.UseThatLacked(bytes, missing_keys_[0]);
    if (use == 0) use = ram_.BeginUse(bytes, here, missing_keys_, Tick(), to_store);
    for (uint32_t c = first; c < coords; ++c) {
      if (request.BytesOf(c) == bytes) uses_[c] = use;
    }
  }
}

void NodeShard::HeatRuns(const ChainRequest& request, uint32_t blocks) {
  const Nanos now = clock_.Now();
  const size_t coords = request.coords.size();
  size_t first = 0;  // Of the run in slots_.
  for (const RunRef& run : request.runs) {
    if (blocks == 0) return;
    const uint32_t used = std::min(blocks, run.count);
    const uint64_t uses = heat_.Used(run.run_key, run.first_index + used, now);
    if (hbm_ != nullptr && uses >= kPromoteUses) {
      for (size_t i = 0; i < size_t{used} * coords; ++i) hbm_->Used(slots_[first + i]);
    }
    first += size_t{used} * coords;
    blocks -= used;
  }
}

// Deepest first, so a parent is more recent than its children.
void NodeShard::TouchAll(const ChainRequest& request) {
  const uint32_t tick = Tick();
  const auto coords = static_cast<uint32_t>(request.coords.size());
  for (size_t i = slots_.size(); i-- > 0;) {
    const uint32_t block = coords == 1 ? slot_pairs_[i] : slot_pairs_[i] / coords;
    ram_.Touch(slots_[i], tick, uses_[slot_pairs_[i] - block * coords], request.depth + block);
    if (disk_ != nullptr && ram_.record(slots_[i]).expires != 0) disk_->Touched(slots_[i]);
  }
}

}  // namespace cistern
