// Two processes with one node id: a copied data folder, a unit that was started on two hosts.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "router/router.h"

namespace cistern {
namespace {

constexpr Nanos kHeartbeat = Nanos{kHeartbeatMs} * kMillisecond;

std::string AddressOf(const std::vector<ShardAddress>& shards) {
  if (shards.empty()) return "?";
  return shards[0].tcp.empty() ? shards[0].unix_name : shards[0].tcp;
}

}  // namespace

bool Router::MayBeAlive(const NodeEntry& entry, const Node& node, Nanos now) const {
  if (entry.state == NodeState::kGone) return false;
  // After its own pause a router has not heard those yet who called meanwhile; Tick sees to that.
  if (node.heard_at > 0 || now - last_tick_ > kTickGapMax) return true;
  // A router that has started again has heard nobody yet: whoever is alive calls in within this.
  return now - listens_since_ < config_.node_silent_max;
}

// An id goes to another process when the one that has it cannot be alive any more: the newcomer holds the
// lock of its folder (a restart, however quick), or it was silent until it left the map. Until then the
// newcomer waits; and it is refused once the other one has been heard a heartbeat later than the newcomer
// first was: a process that died before does not do that.
absl::Status Router::CheckAlone(const RegisterRequest& request) {
  const auto found = nodes_.find(request.node_id);
  if (found == nodes_.end() || found->second.identity.boot_nonce == request.boot_nonce)
    return absl::OkStatus();
  Node& node = found->second;
  if (!request.place.empty() && request.place == node.identity.place) return absl::OkStatus();
  const NodeEntry& entry = *FindEntry(request.node_id);
  const Nanos now = clock_.Now();
  if (!MayBeAlive(entry, node, now)) return absl::OkStatus();

  Count("duplicate_registrations_total");
  auto claim = std::find_if(node.claims.begin(), node.claims.end(),
                            [&](const Claim& one) { return one.boot_nonce == request.boot_nonce; });
  if (claim == node.claims.end()) {
    if (node.claims.size() >= kClaimsMax) node.claims.erase(node.claims.begin());
    claim = node.claims.insert(node.claims.end(), {request.boot_nonce, now});
  }
  const std::string both =
      absl::StrCat(request.node_id, " is served by another process, incarnation ", entry.incarnation, " at ",
                   AddressOf(entry.shards), ", and so not by this one at ", AddressOf(request.shards));
  if (node.heard_at - claim->since <= kHeartbeat || now - node.heard_at > 2 * kHeartbeat) {
    return absl::UnavailableError(absl::StrCat(both, ", unless that one falls silent"));
  }
  const std::string line = absl::StrCat(
      both, ": stop one of them, or give one another --node-id and a --data-dir that is no copy");
  if (config_.warn && now >= node.duplicate_say_at) {
    node.duplicate_say_at = now + kDuplicateSayEvery;
    config_.warn(line);
  }
  return absl::FailedPreconditionError(line);
}

}  // namespace cistern
