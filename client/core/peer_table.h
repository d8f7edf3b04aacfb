#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/core/breaker.h"
#include "client/core/client_counters.h"
#include "client/core/client_types.h"
#include "client/core/request_table.h"
#include "core/cluster_map.h"
#include "core/gone_peer.h"
#include "core/placement.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr uint32_t kNoPeer = UINT32_MAX;
inline constexpr uint64_t kPingRequestId = UINT64_MAX;   // No request's.
inline constexpr Nanos kPingAfter = 200 * kMillisecond;  // Silence, with requests out, before a PING.
inline constexpr Nanos kSilentMax = 2 * kSecond;         // Silence after which the peer is cut off.
inline constexpr Nanos kHintAgainAfter = kSecond;        // Of one peer: it is told of at most so often.
inline constexpr Nanos kSilenceTells =
    100 * kMillisecond;  // A deadline after less silence says nothing about the peer.

enum class PeerState : uint8_t { kIdle, kConnecting, kUp };

// One (node, incarnation, shard). Its slot is reused after it left the map; `id` names the connection and
// never returns.
struct ClientPeer {
  ClientPeer(uint32_t breaker_failures, Nanos breaker_retry) : breaker(breaker_failures, breaker_retry) {}
  std::string node;
  uint64_t incarnation = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  ShardAddress address;
  uint32_t slot = 0;
  uint64_t serial = 0;  // Never reused.
  bool listed = true;   // False: left the map; freed when its requests have ended.
  PeerState state = PeerState::kIdle;
  PeerId id = 0;
  bool one_sided = false;
  bool takes_notes = false;   // Has answered kFlagDetail, so it knows NOTE.
  uint32_t attempt = 0;       // Which address of its list is being tried.
  bool next_address = false;  // The last one failed; Service tries the next.
  std::string attempt_notes;  // Why earlier addresses were not taken.
  Breaker breaker;
  Backoff backoff;
  Nanos retry_at = 0;        // No connection attempt before.
  Nanos negative_until = 0;  // Found dead: not asked before.
  Nanos hint_at = 0;         // The router is not told of it again before.
  Nanos heard_at = 0;
  Nanos silent_since = 0;  // When the silence that counts began: last heard, or first request after idling.
  Nanos ping_at = 0;
  std::string why_down;
  bool came_up = false;            // Since TakeUp.
  uint64_t failed_request = 0;     // Since TakeFailed: requests up to this id have lost their connection.
  std::vector<Request*> requests;  // Sent or waiting for the connection.
  uint64_t round_stamp = 0;        // Scratch of the planner: the ask of this peer in the round being built.
  uint32_t round_ask = 0;
};

// Peers of the current map, their connections, breakers and negative cache. Connections open lazily, one
// attempt at a time per peer (F26). Owner: the core. Thread: the core's. Requests that fail with a peer are
// the core's business: it gets the slots from TakeFailed and TakeUp. What the transport tells takes no memory
// here: it does not tell it again.
class PeerTable {
 public:
  PeerTable(const ClientCoreOptions& options, Clock& clock, Transport& transport, Random& random,
            ClientCounters& counters);

  void SetMap(const ClusterMap& map);
  void SetCredentials(std::string ticket, const ClusterId& cluster);
  bool has_ticket() const { return !hello_.ticket.empty(); }
  const ClusterMap& map() const { return map_; }

  // Owner sets to ask, newest first: 0 is the current map, then its open moves.
  size_t levels() const { return levels_.size(); }
  // Slot of the shard that owns the run at that level; kNoPeer when the level is empty or its owner is not
  // reachable.
  uint32_t PeerFor(size_t level, const BlockHash& run_key) const;
  uint32_t PeerOf(std::string_view node, uint32_t shard) const;
  ClientPeer* Get(uint32_t slot) { return slot < peers_.size() ? peers_[slot].get() : nullptr; }
  ClientPeer* ById(PeerId id);
  size_t size() const { return peers_.size(); }

  // kOk: up, or connecting (the request may wait for it). Else why it is not asked now; costs no system call.
  PartResult Admit(ClientPeer& peer, Nanos now);

  // From the transport's handler.
  void OnUp(PeerId id, const HelloAck& ack);
  void OnDown(PeerId id, const absl::Status& why);
  void Heard(ClientPeer& peer);
  // A request ran into its deadline; `silent_since` tells since when nothing was heard.
  void OnDeadline(ClientPeer& peer, Nanos sent_at);
  // Cuts the peer off; the transport calls OnDown from inside.
  void Fence(ClientPeer& peer, const absl::Status& why);

  // Pings and cuts silent peers, tries next addresses. True if anything was done.
  bool Service(Nanos now);
  Nanos NextWake() const { return next_wake_; }
  void Watch(ClientPeer& peer, Nanos now);  // A request was just sent to it.

  // Peers that came up or lost their connection (or attempt) since last asked.
  void TakeUp(std::vector<uint32_t>& out);
  struct Failure {
    uint32_t slot = 0;
    uint64_t last_request = 0;  // Requests up to this id fail; later ones belong to the next connection.
  };
  void TakeFailed(std::vector<Failure>& out);
  bool HasNews() const { return any_up_ || any_failed_; }

  // Nodes found dead since last asked, each once: what the router should hear of (F32).
  bool HasGone() const { return !gone_.empty(); }
  std::vector<GonePeer> TakeGone() { return std::exchange(gone_, {}); }
  // Whether a node has refused the ticket since last asked: its clock may have moved on past the ticket's
  // end.
  bool TakeTicketRefused() { return std::exchange(ticket_refused_, false); }

  std::vector<PeerRow> Rows() const;

 private:
  struct Address {
    std::string name;
    bool allow_map = true;
    const char* why = "";
  };
  struct Level {
    Placement placement;
    std::vector<uint32_t> nodes;  // Owner index to index in map_.nodes; kNoPeer when it is not there.
  };

  // peer_map.cc
  static std::vector<Level> LevelsOf(const ClusterMap& map,
                                     const std::vector<std::vector<uint32_t>>& slots_of_node);
  void DropUnlisted(const std::vector<bool>& kept, const std::vector<std::vector<uint32_t>>& old_slots);
  ClientPeer* SamePeer(const NodeEntry& node, uint32_t shard);
  uint32_t NewSlot();
  std::vector<Address> AddressesOf(const ClientPeer& peer) const;
  void TryAddresses(ClientPeer& peer);
  void Failed(ClientPeer& peer, absl::string_view why, bool dead);
  void FailedWithoutMemory(ClientPeer& peer);
  void ReportFailed(ClientPeer& peer);
  void Ping(const ClientPeer& peer);
  void CountFailure(ClientPeer& peer, Nanos now);
  void FoundDead(ClientPeer& peer, Nanos now);  // Not asked for negative_ttl; the router is told.
  std::vector<std::pair<PeerId, uint32_t>>::iterator FindId(PeerId id);
  const char* CheckAck(const ClientPeer& peer, const HelloAck& ack) const;

  const ClientCoreOptions& options_;
  Clock& clock_;
  Transport& transport_;
  Random& random_;
  ClientCounters& counters_;
  Hello hello_;
  ClusterMap map_;
  std::vector<Level> levels_;
  std::vector<std::vector<uint32_t>> slots_of_node_;  // Index in map_.nodes to its shards' slots.
  std::vector<std::unique_ptr<ClientPeer>> peers_;
  std::vector<uint32_t> free_;
  uint64_t serials_ = 0;
  std::vector<std::pair<PeerId, uint32_t>> by_id_;  // Slots, in the order of the ids.
  bool any_up_ = false, any_failed_ = false;
  std::vector<GonePeer> gone_;  // kGonePeersMax at most.
  Nanos next_wake_ = kNever;
  PeerId fencing_ = 0;  // Cut by us, not by the network.
  bool ticket_refused_ = false;
};

}  // namespace cistern
