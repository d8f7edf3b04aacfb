#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace cistern {

inline constexpr size_t kNodesMax = 1024;
inline constexpr size_t kShardsPerNodeMax = 64;
inline constexpr size_t kOpenMovesMax = 2;  // Old maps a client may still ask (DESIGN §6).
// Short runs spread a small cache evenly: with runs of 8 two nodes with RAM for 5 % of a trace lost up to
// .005 of its hit ratio to whichever was fuller (docs/adr/0006).
inline constexpr uint32_t kRunBlocksCapDefault = 2;

enum class NodeState : uint8_t { kJoining = 0, kActive = 1, kDraining = 2, kGone = 3 };
std::string_view NodeStateName(NodeState state);

// Where one shard of a node is reached. Empty strings: that path is not offered.
//   tcp:  "127.0.0.1:41234"
//   unix: abstract unix socket name without the leading NUL; the `map` path is negotiated on it.
struct ShardAddress {
  std::string tcp;
  std::string unix_name;
  std::string fabric;  // UCX; filled by the `fabric` issue.
  friend bool operator==(const ShardAddress&, const ShardAddress&) = default;
};

struct NodeEntry {
  std::string id;            // "node-1"
  uint64_t incarnation = 0;  // Given by the router at registration; grows with every process start.
  NodeState state = NodeState::kJoining;
  double weight = 1;  // Capacity weight; > 0.
  std::vector<ShardAddress> shards;
  friend bool operator==(const NodeEntry&, const NodeEntry&) = default;
};

// Nodes that own runs, by id and weight only: all that placement needs. Old maps are kept in this form.
struct OwnerSet {
  uint64_t epoch = 0;
  struct Owner {
    std::string id;
    double weight = 1;
    friend bool operator==(const Owner&, const Owner&) = default;
  };
  std::vector<Owner> owners;
  friend bool operator==(const OwnerSet&, const OwnerSet&) = default;
};

// One version of the cluster, as the router publishes it.
struct ClusterMap {
  ClusterId cluster;
  uint64_t epoch = 0;
  uint64_t weights_epoch = 0;
  uint32_t run_blocks_cap = kRunBlocksCapDefault;
  std::vector<NodeEntry> nodes;  // Sorted by id.
  std::vector<OwnerSet>
      open_moves;  // Newest first, at most kOpenMovesMax: who owned before, still worth asking.
  friend bool operator==(const ClusterMap&, const ClusterMap&) = default;
};

// The nodes of `map` that own runs: active, with a positive finite weight; in the map's order, under its
// epoch.
OwnerSet ActiveOwners(const ClusterMap& map);

}  // namespace cistern
