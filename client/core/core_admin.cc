#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client_core_impl.h"

// STATS, DROP and QUOTA of one shard, and the list of counters.
namespace cistern {
namespace {

// For people: why a node's figures are old.
std::string_view WhyNoAnswer(PartResult result) {
  switch (result) {
    case PartResult::kDeadline:
      return "no answer in time";
    case PartResult::kPeerGone:
      return "it cannot be reached";
    case PartResult::kCancelled:
      return "cancelled: the call was, or the client is closed";
    case PartResult::kBreakerOpen:
      return "not asked, it failed too often just now";
    default:
      return PartResultName(result);
  }
}

}  // namespace

OpId ClientCore::Impl::StartAdmin(std::string_view node, uint32_t shard, FrameType type, ByteView body,
                                  Nanos deadline, AdminDone done) {
  ClientPeer* peer = peers_.Get(peers_.PeerOf(node, shard));
  absl::Status status;
  if (peer == nullptr)
    status = absl::NotFoundError(
        absl::StrCat("no shard ", shard, " of node \"", std::string(node), "\" in the map"));
  Operation* op = peer != nullptr ? Begin(OpKind::kAdmin, deadline) : nullptr;
  if (op == nullptr) {
    if (status.ok()) status = WhyRefused();
    Refuse([status, done = std::move(done)] { done({PartResult::kPeerGone, status, {}}); });
    return 0;
  }
  const auto fill = [&] {
    op->admin_body.assign(body.begin(), body.end());
    op->admin_done = std::move(done);
  };
  return Launch(*op, fill, [&] { SendAdmin(*op, type, *peer); });
}

void ClientCore::Impl::SendAdmin(Operation& op, FrameType type, ClientPeer& peer) {
  op.admin_type = type;
  op.admin_result = Admit(peer);
  Request* request =
      op.admin_result == PartResult::kOk ? NewRequest(&op, type, 0, peer, clock_.Now()) : nullptr;
  if (request == nullptr) {
    if (op.admin_result == PartResult::kOk) op.admin_result = PartResult::kBusy;
    AdvanceAdmin(op);
  } else if (peer.state == PeerState::kUp) {
    Transmit(*request);
  }
  Pump();
}

void ClientCore::Impl::AdvanceAdmin(Operation& op) {
  if (!op.requests.empty()) return;
  if (op.ending && op.admin_result == PartResult::kOk) op.admin_result = op.end_reason;
  if (op.admin_result != PartResult::kOk && op.status.ok()) {
    op.status = absl::Status(PartResultCode(op.admin_result), std::string(WhyNoAnswer(op.admin_result)));
  }
  Complete(op);
}

CounterList ClientCore::Counters() const {
  const ClientCounters& c = impl_->counters_;
  CounterList list = {
      {"client_lookup_blocks_total", c.lookup_blocks},
      {"client_hit_blocks_total", c.hit_blocks},
      {"client_miss_blocks_total", c.miss_blocks},
      {"client_load_bytes_total", c.load_bytes},
      {"client_store_bytes_total", c.store_bytes},
      {"client_connects_total", c.connects},
      {"client_connect_attempts_total", c.connect_attempts},
      {"client_connect_failures_total", c.connect_failures},
      {"client_peers_lost_total", c.peers_lost},
      {"client_fences_total", c.fences},
      {"client_cancels_total", c.cancels},
      {"client_breaker_open_total", c.breaker_open},
      {"client_breaker_skips_total", c.breaker_skips},
      {"client_negative_skips_total", c.negative_skips},
      {"client_peer_hints_total", c.peer_hints},
      {"client_peer_hints_dropped_total", c.peer_hints_dropped},
      {"client_pings_total", c.pings},
      {"client_silent_peers_total", c.silent_peers},
      {"client_old_owner_asks_total", c.old_owner_asks},
      {"client_renews_total", c.renews},
      {"client_stale_plans_total", c.stale_plans},
      {"client_bad_frames_total", c.bad_frames},
      {"client_late_replies_total", c.late_replies},
      {"client_single_flight_shared_total", c.single_flight_shared},
      {"client_share_parts_total", c.share_parts},
      {"client_share_bytes_total", c.share_bytes},
      {"client_share_published_total", c.share_published},
      {"client_share_full_total", c.share_full},
      {"client_share_late_total", c.share_late},
      {"client_share_gone_total", c.share_gone},
      {"client_share_refused_total", c.share_refused},
      {"client_notes_total", c.notes},
      {"client_window_put_bytes_total", c.window_put_bytes},
      {"client_staged_put_bytes_total", c.staged_put_bytes},
      {"client_inline_put_bytes_total", c.inline_put_bytes},
      {"client_operations_refused_total", c.operations_refused},
      {"client_requests_open", impl_->requests_.in_use()},
      {"client_plans_held", impl_->plans_.size() - impl_->free_plans_.size()},
      {"client_peers", impl_->peers_.size()},
      {"client_lease_expired_total", c.load_pages[static_cast<size_t>(PartResult::kLeaseExpired)]},
      {"client_corrupt_pages_total", c.load_pages[static_cast<size_t>(PartResult::kCorrupt)]},
  };
  for (size_t i = 0; i <= kPartResultMax; ++i) {
    std::string name(PartResultName(static_cast<PartResult>(i)));
    for (char& ch : name) ch = ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch + 32) : ch;
    list.emplace_back("client_load_pages_" + name + "_total", c.load_pages[i]);
    list.emplace_back("client_store_pages_" + name + "_total", c.store_pages[i]);
  }
  return list;
}

}  // namespace cistern
