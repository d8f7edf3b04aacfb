#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cluster_map.h"
#include "router/state_store.h"

// How the router's state lies in a StateStore: "map" and one "node/<id>" a node.
namespace cistern {

// Which process a node was, and which it no longer is.
struct NodeIdentity {
  uint64_t boot_nonce = 0;
  std::vector<uint64_t> old_nonces;  // Newest last.
  std::string place;                 // As it registered.
  bool draining = false;             // An operator's wish: it outlives processes.
  friend bool operator==(const NodeIdentity&, const NodeIdentity&) = default;
};

struct RouterState {
  ClusterMap map;
  uint64_t last_incarnation = 0;
  std::map<std::string, NodeIdentity> nodes;  // Exactly the map's nodes.
};

StateChange EncodeMap(const ClusterMap& map, uint64_t last_incarnation);
StateChange EncodeNode(std::string_view id, const NodeIdentity& identity);
StateChange ForgetNode(std::string_view id);

// DataLoss naming the key when anything is missing, malformed or of a newer schema. An empty store is not
// decoded.
absl::StatusOr<RouterState> DecodeState(const std::map<std::string, std::string>& values);

}  // namespace cistern
