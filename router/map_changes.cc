#include "router/map_changes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cistern {
namespace {

const NodeEntry* Find(const ClusterMap& map, const std::string& id) {
  const auto at =
      std::find_if(map.nodes.begin(), map.nodes.end(), [&](const NodeEntry& node) { return node.id == id; });
  return at != map.nodes.end() ? &*at : nullptr;
}

std::string Address(const NodeEntry& node) { return node.shards.empty() ? "?" : node.shards[0].tcp; }

std::string Change(const NodeEntry* before, const NodeEntry& after) {
  const std::string name = absl::StrCat(after.id, " incarnation ", after.incarnation);
  if (before == nullptr) return absl::StrCat(name, " joined from ", Address(after));
  if (before->incarnation != after.incarnation && before->state == NodeState::kGone)
    return absl::StrCat(name, " is back as a new process at ", Address(after));
  if (before->incarnation != after.incarnation) {
    return absl::StrCat(name, " at ", Address(after), " takes over from incarnation ", before->incarnation,
                        " at ", Address(*before), ": a restart on the same data folder");
  }
  if (before->state == after.state) return {};
  if (after.state == NodeState::kGone)
    return absl::StrCat(name, " at ", Address(after),
                        " is silent: gone from placement until it is heard again");
  if (before->state == NodeState::kGone) return absl::StrCat(name, " is heard again");
  return absl::StrCat(name, " is ", std::string(NodeStateName(after.state)));
}

}  // namespace

std::vector<std::string> MapChanges(const ClusterMap& before, const ClusterMap& after) {
  std::vector<std::string> lines;
  for (const NodeEntry& node : after.nodes) {
    std::string line = Change(Find(before, node.id), node);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  for (const NodeEntry& node : before.nodes) {
    if (Find(after, node.id) == nullptr) lines.push_back(absl::StrCat(node.id, " is forgotten"));
  }
  return lines;
}

}  // namespace cistern
