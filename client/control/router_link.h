#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/gone_peer.h"
#include "core/ticket.h"
#include "proto/control.h"

// Built by client/control/CMakeLists.txt (target cistern_router_link), which client/CMakeLists.txt adds.
namespace cistern {

struct RouterLinkOptions {
  std::string router = "127.0.0.1:7400";  // HOST:PORT
  std::string tenant;                     // Empty: "default"
  uint32_t rights = kRightRead | kRightWrite;
  Nanos rpc_deadline = 2 * kSecond;
  Nanos backoff_min = 50 * kMillisecond;  // Between failed attempts, doubling, with jitter.
  Nanos backoff_max = 2 * kSecond;
  // WaitReady ends with the first attempt that finds nobody there (for tools; an engine that starts together
  // with its router waits).
  bool first_refusal_ends = false;
  // A watch that brings nothing for this long is dead (the router sends a copy every 10 s).
  Nanos watch_silent_max = 25 * kSecond;
  Nanos renew_min = 10 * kSecond;  // Tickets are renewed at half of their life, never more often than this.
  uint64_t seed = 0;               // Of the jitter; 0: drawn at random.
};

// Run on the link's thread, one at a time, never after the destructor has returned; post and return.
struct RouterLinkCallbacks {
  std::function<void(const ClusterMap&)>
      on_map;  // First map, then each other epoch (also a lower one: a new router).
  std::function<void(const TicketGrant&)> on_ticket;  // First ticket, then each renewal, well before expiry.
};

// Follows the router for a client: map, ticket, renewals. One background thread makes one attempt at a time
// (F26), backing off with jitter while the router is away; what was learnt before stays valid meanwhile, so
// the data path never waits. Owner: the client. Thread-safe. The destructor cancels what is outstanding and
// joins.
class RouterLink {
 public:
  RouterLink(RouterLinkOptions options, RouterLinkCallbacks callbacks);
  ~RouterLink();
  RouterLink(const RouterLink&) = delete;
  RouterLink& operator=(const RouterLink&) = delete;

  // Cancels what is outstanding and joins the thread; what was learnt stays. Idempotent. Thread: any but its
  // own.
  void Stop();
  // Waits for the first map and ticket. On failure one line for people: the router's address, why, what to
  // do.
  absl::Status WaitReady(Nanos timeout);
  std::optional<ClusterMap> map() const;
  std::optional<TicketGrant> ticket() const;
  // Tells the router of nodes that could not be reached (F32); never waits. One report is out at a time, what
  // comes meanwhile goes with the next. Without a connection or beyond kGonePeersMax it is dropped: a node
  // that stays dead is found dead again. Thread: any.
  void ReportGone(const std::vector<GonePeer>& peers);
  // A node has refused the ticket, as after a step of somebody's wall clock: another one is asked for with
  // the next copy of the map, renew_min after the last at the earliest. Never waits. Thread: any.
  void RenewTicket();
  // One call with its own deadline, from any thread; independent of the background thread.
  absl::StatusOr<ClusterStatus> GetStatus(Nanos timeout);

  bool connected() const;             // The watch is up.
  uint64_t connect_attempts() const;  // Attempts begun since the start.
  uint64_t connects() const;          // Attempts that brought a map.
  uint64_t gone_reported() const;     // Peers in reports that the router took.
  uint64_t gone_dropped() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same without a link, for tools. The error is one line that names the router.
absl::StatusOr<ClusterStatus> FetchClusterStatus(const std::string& router, Nanos timeout);

// Takes a node out of placement, or with `undo` back in. Likewise.
absl::StatusOr<DrainResult> DrainNode(const std::string& router, const std::string& node, bool undo,
                                      Nanos timeout);

}  // namespace cistern
