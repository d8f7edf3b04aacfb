#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cistern {

struct TierStats {
  std::string tier;  // "hbm", "ram", "nvme"
  uint64_t used_bytes = 0;
  uint64_t capacity_bytes = 0;
  uint64_t parts = 0;
  std::string device{};  // What it is made of, where that can differ: "host stand-in", "cuda 0".
};
// A run of blocks and how lately it was used.
struct RunStats {
  std::string run;  // First 8 bytes of its key, hex.
  uint32_t blocks = 0;
  uint64_t uses = 0;
  uint64_t idle_ms = 0;     // Since the last use.
  std::string temperature;  // "hot", "warm" or "cold".
};
struct PeerStats {
  std::string peer;       // "client 5f3a..." or a node id
  std::string transport;  // PathKindName
  std::string device, memory, why;
};
// Live figures of one node; what `cistern status` shows and a heartbeat carries.
struct NodeStats {
  std::vector<TierStats> tiers;
  uint64_t hit_blocks = 0;   // Exact: leading blocks found by LOOKUP without probe flag and by PLAN.
  uint64_t miss_blocks = 0;  // Exact: blocks asked for behind those.
  double cpu_seconds = 0;    // User and system time of the process.
  std::map<std::string, uint64_t>
      counters;                  // "collisions_rejected_total", "leases_live", "pinned_bytes", ...
  std::vector<PeerStats> peers;  // At most kPeerStatsMax.
  std::vector<RunStats> runs;    // The most used ones, at most kRunStatsMax.
};
inline constexpr size_t kPeerStatsMax = 64;
inline constexpr size_t kRunStatsMax = 32;

// Adds up shards of one node.
void MergeStats(const NodeStats& shard, NodeStats& into);

}  // namespace cistern
