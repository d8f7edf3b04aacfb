#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/cluster_map.h"
#include "core/ids.h"

namespace cistern {

// One run of a chain: blocks [first, first + count), owned together; its key is the hash of block `first`.
struct Run {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Cuts a chain of `blocks` blocks into runs that grow with depth: [0], [1], [2,3], [4..7], then `cap` each.
// A run's borders depend on depth alone, so two chains that share a prefix share its runs. Reuses `out`.
void CutRuns(uint32_t blocks, uint32_t cap, std::vector<Run>& out);

// The depth at which the run that holds block `index` begins.
uint32_t RunFirst(uint32_t index, uint32_t cap);

// Weighted rendezvous hashing: ranks owners for run keys. Immutable; built once per map epoch. Thread: any.
class Placement {
 public:
  Placement() = default;
  // The map's active owners (ActiveOwners); a draining node owns nothing new, even when no other is left.
  explicit Placement(const ClusterMap& map);
  explicit Placement(const OwnerSet& owners);

  bool empty() const { return seeds_.empty(); }
  size_t size() const { return seeds_.size(); }
  const OwnerSet& owners() const { return owners_; }
  // Index into owners().owners of the winner; never called when empty().
  size_t Owner(const BlockHash& run_key) const;
  // The best `k` in order, for replicas.
  std::vector<size_t> TopK(const BlockHash& run_key, size_t k) const;

 private:
  OwnerSet owners_;
  std::vector<uint64_t> seeds_;     // Hash of each owner's id.
  std::vector<double> inv_weight_;  // 1 / weight; empty when all weights are equal, which needs no logarithm.
};

// The shard of a node that serves a run: high bits of the run key, uniform over `shards`.
inline uint32_t ShardOf(const BlockHash& run_key, uint32_t shards) {
  const uint64_t high = __builtin_bswap64(run_key.Prefix64());
  return static_cast<uint32_t>((static_cast<unsigned __int128>(high) * shards) >> 64);
}

}  // namespace cistern
