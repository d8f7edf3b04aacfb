#include "core/node_stats.h"

#include <algorithm>

namespace cistern {

void MergeStats(const NodeStats& shard, NodeStats& into) {
  for (const TierStats& tier : shard.tiers) {
    const auto same = std::find_if(into.tiers.begin(), into.tiers.end(),
                                   [&tier](const TierStats& have) { return have.tier == tier.tier; });
    if (same == into.tiers.end()) {
      into.tiers.push_back(tier);
      continue;
    }
    same->used_bytes += tier.used_bytes;
    same->capacity_bytes += tier.capacity_bytes;
    same->parts += tier.parts;
  }
  into.hit_blocks += shard.hit_blocks;
  into.miss_blocks += shard.miss_blocks;
  into.cpu_seconds =
      std::max(into.cpu_seconds, shard.cpu_seconds);  // The process's, so shards tell the same figure.
  for (const auto& [name, value] : shard.counters) into.counters[name] += value;
  into.runs.insert(into.runs.end(), shard.runs.begin(), shard.runs.end());
  std::stable_sort(into.runs.begin(), into.runs.end(),
                   [](const RunStats& a, const RunStats& b) { return a.uses > b.uses; });
  if (into.runs.size() > kRunStatsMax) into.runs.resize(kRunStatsMax);
  for (const PeerStats& peer : shard.peers) {
    if (into.peers.size() >= kPeerStatsMax) break;
    into.peers.push_back(peer);
  }
}

}  // namespace cistern
