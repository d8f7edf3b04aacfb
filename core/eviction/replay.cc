#include "core/eviction/replay.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/eviction/replay_pool.h"
#include "core/placement.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

PolicyTick TickOf(int64_t time_ms) { return static_cast<PolicyTick>(time_ms * 1'000'000 >> 23); }

OwnerSet NodesOf(uint32_t nodes) {
  OwnerSet owners;
  for (uint32_t n = 1; n <= nodes; ++n) owners.owners.push_back({.id = "node-" + std::to_string(n)});
  return owners;
}

// Which blocks of a chain each node owns, by the cluster's own placement. A block's number stands for its
// hash.
class Split {
 public:
  explicit Split(uint32_t nodes) : placement_(NodesOf(nodes)), chains_(nodes), places_(nodes) {}

  void Cut(const std::vector<uint32_t>& chain) {
    for (auto& part : chains_) part.clear();
    for (auto& part : places_) part.clear();
    CutRuns(static_cast<uint32_t>(chain.size()), kRunBlocksCapDefault, runs_);
    for (const Run& run : runs_) {
      BlockHash key{};
      const uint64_t number = ReplayPool::KeyOf(chain[run.first]);
      std::memcpy(key.bytes.data(), &number, sizeof(number));
      const size_t owner = placement_.size() == 1 ? 0 : placement_.Owner(key);
      for (uint32_t i = run.first; i < run.first + run.count; ++i) {
        chains_[owner].push_back(chain[i]);
        places_[owner].push_back(i);
      }
    }
  }
  absl::Span<const uint32_t> Chain(size_t node) const { return chains_[node]; }
  // How many blocks of the node's part lie before block `at` of the whole chain.
  size_t Before(size_t node, size_t at) const {
    return static_cast<size_t>(std::lower_bound(places_[node].begin(), places_[node].end(), at) -
                               places_[node].begin());
  }

 private:
  const Placement placement_;
  std::vector<Run> runs_;
  std::vector<std::vector<uint32_t>> chains_, places_;  // By node.
};

}  // namespace

absl::StatusOr<ReplayScore> ReplayPolicy(std::string_view policy, const ReplayTrace& trace, uint32_t capacity,
                                         ReplayFlow flow, uint32_t nodes) {
  if (nodes == 0 || nodes > capacity)
    return absl::InvalidArgumentError("a pool of " + std::to_string(capacity) +
                                      " slots cannot be split over " + std::to_string(nodes) +
                                      " nodes; name fewer, or a greater size");
  std::vector<std::unique_ptr<EvictionPolicy>> policies;
  std::vector<ReplayPool> pools;
  for (uint32_t n = 0; n < nodes; ++n) {
    const uint32_t share = capacity / nodes + (n < capacity % nodes ? 1 : 0);
    CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<EvictionPolicy> made, MakeEvictionPolicy(policy, share));
    policies.push_back(std::move(made));
    pools.emplace_back(*policies.back(), share, trace.unique);
  }
  Split split(nodes);
  ReplayScore score;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const std::vector<uint32_t>& chain = trace.requests[r];
    const PolicyTick tick = TickOf(trace.times_ms[r]);
    split.Cut(chain);
    size_t hit = 0;
    // A block is with its owner or nowhere.
    const auto is_here = [&](uint32_t block) {
      return std::any_of(pools.begin(), pools.end(), [=](const ReplayPool& pool) { return pool.Has(block); });
    };
    while (hit < chain.size() && is_here(chain[hit])) ++hit;
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (uint32_t n = 0; n < nodes; ++n) {
      if (split.Chain(n).empty()) continue;
      if (flow == ReplayFlow::kPlain) {
        pools[n].UseAll(split.Chain(n), tick);
      } else {
        pools[n].Plan(split.Chain(n), tick);
      }
    }
    if (flow == ReplayFlow::kPlain) continue;
    for (uint32_t n = 0; n < nodes; ++n) {
      if (split.Chain(n).empty()) continue;
      pools[n].Offer(split.Chain(n), split.Before(n, hit), tick);
      pools[n].Release();
    }
  }
  for (const ReplayPool& pool : pools) score.stranding_evictions += pool.stranding_evictions();
  return score;
}

}  // namespace cistern
