#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/host_port.h"
#include "core/ids.h"
#include "core/node_stats.h"
#include "core/ticket.h"

// Plain values of the control plane: what router, nodes and clients say to each other, without a protobuf or
// gRPC header.
namespace cistern {

inline constexpr size_t kNodeIdBytesMax = 64;
inline constexpr size_t kPlaceBytesMax = 96;
inline constexpr size_t kCountersMax = 256;
inline constexpr size_t kCounterNameBytesMax = 96;
inline constexpr uint64_t kIncarnationMax = uint64_t{1} << 48;
inline constexpr double kWeightMax = 1e9;
inline constexpr uint32_t kHeartbeatMsMin = 10;
inline constexpr uint32_t kHeartbeatMsMax = 60000;
// How many gRPC bytes one control message may have; a full map of kNodesMax nodes stays below.
inline constexpr int kControlMessageBytesMax = 16 << 20;

// What a node says when it starts, or when the router does not know it (any more).
struct RegisterRequest {
  std::string node_id;
  std::optional<ClusterId> cluster;  // Empty on a folder's first start.
  uint64_t boot_nonce = 0;           // Random per process; not 0.
  double weight = 0;                 // 0: proportional to ram_bytes, 1 a GiB.
  std::vector<ShardAddress> shards;
  uint64_t ram_bytes = 0;
  uint64_t held_incarnation = 0;  // What this process was given before; 0: nothing yet.
  // Names the lock of the data folder that this process holds. Of two processes that name the same one, the
  // earlier is dead. Empty: unknown. Outside of the proof, which releases without it must be able to check.
  std::string place;
  std::string proof;  // RegisterProof of the above.
};
struct Registration {
  ClusterId cluster;
  uint64_t incarnation = 0;
  uint32_t heartbeat_ms = 0;
  friend bool operator==(const Registration&, const Registration&) = default;
};

// What a node says again and again.
struct HeartbeatRequest {
  std::string node_id;
  uint64_t incarnation = 0;
  uint64_t known_epoch = 0;  // The reply carries the map when the router's epoch differs.
  std::vector<uint64_t> shard_last_poll_ms_ago;
  NodeStats stats;
  std::string proof;  // HeartbeatProof.
};
struct HeartbeatResult {
  bool known = false;  // False: register again.
  uint64_t epoch = 0;
};

// An operator's wish that a node gets nothing new, or does again.
struct DrainRequest {
  std::string ticket;  // Sealed; it has to carry kRightAdmin.
  std::string node_id;
  bool undo = false;
};
struct DrainResult {
  NodeState state = NodeState::kJoining;
  uint64_t epoch = 0;
};

// The rules of a registration that need no state: ids, counts, lengths, addresses. InvalidArgument names the
// field.
absl::Status ValidateRegister(const RegisterRequest& request);
absl::Status ValidateShardAddress(const ShardAddress& address);

// HMAC-SHA-256 under the cluster key's "register" subkey over every field of the request but `proof` and
// `place`, framed: a proof that was seen on the wire cannot be used to register other addresses.
std::string RegisterProof(const ClusterKey& key, const RegisterRequest& request);
std::string HeartbeatProof(const ClusterKey& key, std::string_view node_id, uint64_t incarnation);
// Compares in constant time.
bool SameProof(std::string_view a, std::string_view b);

// "node-1": 1..kNodeIdBytesMax of [a-zA-Z0-9._-], not beginning with '.' or '-'.
bool IsNodeId(std::string_view id);

// A client's right to talk to nodes, and the secret that seeds its chains.
struct TicketGrant {
  ClusterId cluster;
  std::string sealed;
  std::array<uint8_t, 32> namespace_secret{};
  int64_t expires_unix_s = 0;
};

struct NodeRecord {
  NodeEntry entry;
  NodeStats stats;  // As of the last heartbeat.
  uint64_t last_heartbeat_ms_ago = 0;
  std::vector<uint64_t> shard_last_poll_ms_ago;
};
struct ClusterStatus {
  std::string router_id;
  std::string address;
  uint64_t pid = 0;
  uint64_t uptime_ms = 0;
  ClusterMap map;
  std::vector<NodeRecord> nodes;
  std::map<std::string, uint64_t> counters;
};

// Waits between attempts: doubles from `min` to `max`, each wait drawn from [half, whole] so that many peers
// that lost the same router do not come back in step. One thread.
class Backoff {
 public:
  Backoff(Nanos min, Nanos max, uint64_t seed) : min_(min), max_(max), state_(seed) {}
  Nanos Next();
  void Reset() { attempt_ = 0; }

 private:
  Nanos min_, max_;
  uint64_t state_;
  int attempt_ = 0;
};

}  // namespace cistern
