#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/gone_peer.h"
#include "core/random.h"
#include "core/ticket.h"
#include "proto/control.h"
#include "router/state_codec.h"
#include "router/state_store.h"

namespace cistern {

inline constexpr uint32_t kHeartbeatMs = 500;
inline constexpr Nanos kNodeSilentMax = 3 * kSecond;  // Without a heartbeat for this long a node is gone.
// The same for a node that somebody else found dead (F32): three heartbeats missed.
inline constexpr Nanos kHintedSilentMax = 1500 * kMillisecond;
inline constexpr uint32_t kHintsPerSecondMax =
    1024;  // Peers in reports that are looked at; more are refused.
inline constexpr Nanos kRestartGrace =
    6 * kSecond;  // The same, for nodes that a restarted router has not heard yet.
inline constexpr Nanos kMoveOpen = 60 * kSecond;  // How long clients go on asking the owners before a change.
inline constexpr int64_t kTicketLifeSeconds = 12 * 3600;
inline constexpr Nanos kTickMax = 500 * kMillisecond;  // Tick wants to be called at least this often.
inline constexpr Nanos kTickGapMax =
    2 * kSecond;                            // A longer pause was the router's own: it expires nobody for it.
inline constexpr size_t kOldNoncesMax = 8;  // Superseded processes of a node that are still recognised.
inline constexpr size_t kClaimsMax = 8;     // Processes of one node id that wait for it; the oldest goes.
inline constexpr Nanos kDuplicateSayEvery = 60 * kSecond;  // One line a node.
// All are there from the start: whoever watches them sees the first of a kind as a rise from 0.
inline constexpr const char* kRouterCounters[] = {"drains_total",
                                                  "drains_undone_total",
                                                  "duplicate_registrations_total",
                                                  "heartbeats_refused_total",
                                                  "heartbeats_unknown_total",
                                                  "heartbeat_stats_refused_total",
                                                  "nodes_expired_total",
                                                  "nodes_expired_by_hint_total",
                                                  "nodes_rejoined_total",
                                                  "pauses_total",
                                                  "peer_hints_denied_total",
                                                  "peer_hints_early_total",
                                                  "peer_hints_over_limit_total",
                                                  "peer_hints_stale_total",
                                                  "peer_hints_taken_total",
                                                  "registrations_total",
                                                  "registrations_refused_total",
                                                  "store_errors_total",
                                                  "tickets_total"};

struct RouterConfig {
  std::string router_id = "router-1";
  std::string address;  // For people: where it listens.
  uint64_t pid = 0;
  std::optional<ClusterId> cluster;  // Empty: what the store has; a fresh store gets a random one.
  uint32_t run_blocks_cap = kRunBlocksCapDefault;
  Nanos node_silent_max = kNodeSilentMax;
  Nanos hinted_silent_max = kHintedSilentMax;
  Nanos restart_grace = kRestartGrace;
  Nanos move_open = kMoveOpen;
  int64_t ticket_life_seconds = kTicketLifeSeconds;
  std::function<void(const std::string& line)> warn;  // What a person should see; empty: nobody looks.
};

// The cluster's membership and map, as plain values: no gRPC, no thread. Every change is committed to the
// store before it is visible in map(), so a router that dies and comes back never takes back an epoch or an
// incarnation. Owner: the router's process or the simulator; one thread; clock, random, store and key outlive
// it.
class Router {
 public:
  // Loads the store. FailedPrecondition when it belongs to another cluster than `config.cluster`, DataLoss
  // when unreadable.
  static absl::StatusOr<std::unique_ptr<Router>> Create(const RouterConfig& config, const ClusterKey& key,
                                                        StateStore& store, Clock& clock, Random& random);

  // A node joins, or comes back. The same boot nonce gets the same incarnation; another one a higher
  // incarnation. PermissionDenied: proof wrong. FailedPrecondition: other cluster, or another process that is
  // alive has this id. Unavailable: it may be alive, try again. Aborted: a newer process has this id.
  // InvalidArgument.
  absl::StatusOr<Registration> Register(const RegisterRequest& request);
  // A gone node becomes active again under a new epoch (F46, F47); what it says of itself counts from its
  // next heartbeat.
  absl::StatusOr<HeartbeatResult> Heartbeat(const HeartbeatRequest& request);
  // Somebody could not reach these processes. A hint only (router_hints.cc): until they are heard again they
  // are given hinted_silent_max without a heartbeat instead of node_silent_max. Gives how many have missed
  // one. PermissionDenied: no valid ticket. ResourceExhausted: kHintsPerSecondMax.
  absl::StatusOr<uint32_t> ReportPeersGone(const GoneReport& report, int64_t now_unix_s);
  // Takes a node out of placement, or back in, until the contrary is said: what it holds is read as long as
  // it runs. PermissionDenied: no ticket with the right to administer. NotFound. FailedPrecondition: the last
  // active node.
  absl::StatusOr<DrainResult> Drain(const DrainRequest& request, int64_t now_unix_s);
  // Expires silent nodes, closes old moves. Returns when it wants to be called again, at the latest.
  Nanos Tick();

  const ClusterMap& map() const { return map_; }
  const ClusterId& cluster() const { return map_.cluster; }
  std::array<uint8_t, 32> NamespaceSecret(std::string_view name_space) const;
  // rights: 0 means read and write. NotFound for a tenant that does not exist.
  absl::StatusOr<TicketGrant> IssueTicket(std::string_view tenant, uint32_t rights, int64_t now_unix_s);
  // A client watches the map: from now on owners may hold blocks, so that changes open moves.
  void NoteClient() { owners_may_hold_blocks_ = true; }
  ClusterStatus Status();
  void SetAddress(std::string address) { config_.address = std::move(address); }
  // One of kRouterCounters.
  void Count(const std::string& counter, uint64_t by = 1) {
    const auto at = counters_.find(counter);
    CISTERN_CHECK(at != counters_.end());
    at->second += by;
  }

 private:
  // A process that wants a node's id while another one has it.
  struct Claim {
    uint64_t boot_nonce = 0;
    Nanos since = 0;
  };
  // What the map does not show of a node.
  struct Node {
    NodeIdentity identity;
    Nanos deadline = 0;        // Gone when no heartbeat came until then.
    Nanos heard_at = 0;        // Since when silence counts; 0: not heard in this router's life.
    Nanos last_heartbeat = 0;  // 0: none in this router's life.
    NodeStats stats;
    std::vector<uint64_t> shard_last_poll_ms_ago;
    std::vector<Claim> claims;   // Newest last.
    Nanos duplicate_say_at = 0;  // Not sooner.
  };
  struct OpenMove {
    OwnerSet owners;
    Nanos closes = 0;
  };

  Router(const RouterConfig& config, const ClusterKey& key, StateStore& store, Clock& clock, Random& random);
  absl::Status Load();
  absl::Status CheckIdentity(const RegisterRequest& request) const;
  // router_duplicates.cc
  absl::Status CheckAlone(const RegisterRequest& request);
  bool MayBeAlive(const NodeEntry& entry, const Node& node, Nanos now) const;
  // A node that owned runs by `owners` is being drained.
  bool NamesDraining(const OwnerSet& owners) const;
  // The node's entry and identity as they will be once registered; takes the next incarnation from
  // `last_incarnation`.
  NodeEntry EntryFor(const RegisterRequest& request, uint64_t& last_incarnation) const;
  NodeIdentity IdentityFor(const RegisterRequest& request) const;
  const NodeEntry* FindEntry(std::string_view id) const;
  // Drops the longest gone node from a full map.
  absl::Status MakeRoomIn(ClusterMap& next, std::vector<StateChange>& changes) const;
  // Gives `next` its epoch and open moves, commits it with `changes`, and makes it the map. Nothing changes
  // on an error.
  absl::Status Publish(ClusterMap next, uint64_t last_incarnation, std::vector<StateChange> changes);
  std::vector<OpenMove> MovesAfter(const ClusterMap& next) const;
  void Heard(Node& node, Nanos now);
  bool TakeHint(const GonePeer& peer, Nanos now);
  void ExpireSilent(Nanos now);
  void CloseOldMoves(Nanos now);

  RouterConfig config_;
  const ClusterKey& key_;
  StateStore& store_;
  Clock& clock_;
  Random& random_;
  Nanos started_;
  Nanos last_tick_;
  Nanos listens_since_;  // Its start, or the end of its last pause.
  ClusterMap map_;
  std::vector<OpenMove> moves_;  // Newest first; the map's open_moves with their ends.
  std::map<std::string, Node, std::less<>> nodes_;
  uint64_t last_incarnation_ = 0;
  // True once a client may have stored something under the present owners: before that, nobody need ask them
  // later.
  bool owners_may_hold_blocks_ = false;
  Nanos hints_since_ = 0;  // Of the second whose hints are counted.
  uint32_t hints_ = 0;
  std::map<std::string, uint64_t> counters_;
};

}  // namespace cistern
