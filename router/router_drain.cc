// Nodes that an operator takes out of placement before they are stopped.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "router/router.h"

namespace cistern {

bool Router::NamesDraining(const OwnerSet& owners) const {
  return std::any_of(owners.owners.begin(), owners.owners.end(), [this](const OwnerSet::Owner& owner) {
    const NodeEntry* entry = FindEntry(owner.id);
    return entry != nullptr && entry->state == NodeState::kDraining;
  });
}

absl::StatusOr<DrainResult> Router::Drain(const DrainRequest& request, int64_t now_unix_s) {
  const absl::StatusOr<Ticket> ticket = OpenTicket(request.ticket, key_, map_.cluster, now_unix_s);
  if (!ticket.ok()) return ticket.status();
  if ((ticket->rights & kRightAdmin) == 0)
    return absl::PermissionDeniedError("draining takes a ticket with the right to administer");
  const NodeEntry* entry = FindEntry(request.node_id);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("there is no node ", request.node_id));
  Node& node = nodes_.find(request.node_id)->second;
  if (node.identity.draining == !request.undo) return DrainResult{entry->state, map_.epoch};
  const auto active = [&](const NodeEntry& other) {
    return other.state == NodeState::kActive && other.id != request.node_id;
  };
  if (!request.undo && std::none_of(map_.nodes.begin(), map_.nodes.end(), active)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no other node is active: with ", request.node_id,
        " drained nothing could be stored; start another node first, or stop this one as it is"));
  }
  NodeIdentity identity = node.identity;
  identity.draining = !request.undo;
  ClusterMap next = map_;
  for (NodeEntry& one : next.nodes) {
    if (one.id == request.node_id && one.state != NodeState::kGone)
      one.state = request.undo ? NodeState::kActive : NodeState::kDraining;
  }
  const absl::Status published =
      Publish(std::move(next), last_incarnation_, {EncodeNode(request.node_id, identity)});
  if (!published.ok()) return published;
  nodes_.find(request.node_id)->second.identity = std::move(identity);
  Count(request.undo ? "drains_undone_total" : "drains_total");
  return DrainResult{FindEntry(request.node_id)->state, map_.epoch};
}

}  // namespace cistern
