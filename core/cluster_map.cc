#include "core/cluster_map.h"

#include <cmath>

namespace cistern {

std::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kJoining:
      return "joining";
    case NodeState::kActive:
      return "active";
    case NodeState::kDraining:
      return "draining";
    case NodeState::kGone:
      return "gone";
  }
  return "unknown";
}

OwnerSet ActiveOwners(const ClusterMap& map) {
  OwnerSet set;
  set.epoch = map.epoch;
  for (const NodeEntry& node : map.nodes) {
    const bool weighs = std::isfinite(node.weight) && node.weight > 0;
    if (node.state == NodeState::kActive && weighs) set.owners.push_back({node.id, node.weight});
  }
  return set;
}

}  // namespace cistern
