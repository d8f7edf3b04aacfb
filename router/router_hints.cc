// What clients (and nodes) say of nodes that they could not reach (F32).
#include <algorithm>

#include "router/router.h"

namespace cistern {

// Nothing is done at once: the node's time without a heartbeat becomes shorter, and the next heartbeat makes
// it whole again. So a liar, or a client whose own link is cut, takes no node out that this router hears.
bool Router::TakeHint(const GonePeer& peer, Nanos now) {
  const NodeEntry* entry = FindEntry(peer.node_id);
  if (entry == nullptr || entry->incarnation != peer.incarnation || entry->state == NodeState::kGone) {
    Count("peer_hints_stale_total");  // The map says so already; whoever asks is behind.
    return false;
  }
  Node& node = nodes_.find(peer.node_id)->second;
  if (node.heard_at == 0) {
    Count("peer_hints_early_total");  // After a restart nodes get their whole time to call in.
    return false;
  }
  node.deadline = std::min(node.deadline, node.heard_at + config_.hinted_silent_max);
  Count("peer_hints_taken_total");
  return now - node.heard_at > Nanos{kHeartbeatMs} * kMillisecond;
}

absl::StatusOr<uint32_t> Router::ReportPeersGone(const GoneReport& report, int64_t now_unix_s) {
  if (absl::Status opened = OpenTicket(report.ticket, key_, map_.cluster, now_unix_s).status();
      !opened.ok()) {
    Count("peer_hints_denied_total", report.peers.size());
    return opened;
  }
  const Nanos now = clock_.Now();
  if (now - hints_since_ >= kSecond) {
    hints_since_ = now;
    hints_ = 0;
  }
  if (hints_ + report.peers.size() > kHintsPerSecondMax) {
    Count("peer_hints_over_limit_total", report.peers.size());
    return absl::ResourceExhaustedError("reports of dead nodes are above kHintsPerSecondMax");
  }
  hints_ += static_cast<uint32_t>(report.peers.size());
  uint32_t silent = 0;
  for (const GonePeer& peer : report.peers) silent += TakeHint(peer, now) ? 1 : 0;
  return silent;
}

}  // namespace cistern
