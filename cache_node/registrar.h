#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/cluster_map.h"
#include "core/node_stats.h"
#include "core/ticket.h"
#include "proto/control.h"

// Built by cache_node/registrar.cmake (target cistern_registrar), which cache_node/CMakeLists.txt includes.
namespace cistern {

inline constexpr Nanos kTroubleSayEvery = 10 * kSecond;

struct RegistrarOptions {
  std::string router = "127.0.0.1:7400";  // HOST:PORT
  std::string node_id;                    // "node-1"
  ClusterKey key;
  std::optional<ClusterId> expected_cluster;  // From the data folder; empty on its first start.
  double weight = 0;                          // 0: the router derives it from ram_bytes.
  uint64_t ram_bytes = 0;
  std::vector<ShardAddress> shards;
  uint64_t boot_nonce = 0;                 // 0: drawn at random.
  std::string place;                       // The data folder's (data_folder.h); empty: none.
  Nanos rpc_deadline = 1 * kSecond;        // Of one heartbeat or registration.
  Nanos backoff_min = 100 * kMillisecond;  // Between failed attempts, with jitter.
  Nanos backoff_max = 1 * kSecond;  // Below the router's patience, so that a returning router expels nobody.
  Nanos trouble_say_every = kTroubleSayEvery;
};

// What a heartbeat carries. shard_last_poll_ms_ago: age of each shard's last turn of its loop.
struct NodeReport {
  NodeStats stats;
  std::vector<uint64_t> shard_last_poll_ms_ago;
};

// All run on the registrar's own thread; they must not block for long, and must not call Stop.
struct RegistrarCallbacks {
  std::function<NodeReport()> report;  // Thread-safe snapshot of the node. Required.
  std::function<void(const Registration&)>
      on_registered;                              // First, and whenever cluster or incarnation change.
  std::function<void(const ClusterMap&)> on_map;  // Each new epoch.
  // The router will not take this process: before the first registration other cluster, wrong key, bad
  // address, or a live process with this id; later only that a newer process has this id (a node with data
  // does not die of a stranger on the router's port, it goes on trying). The registrar has ended; a node
  // should exit with the message.
  std::function<void(const absl::Status&)> on_refused;
  // For the log: why the router does not take the node, each time that this changes but not more often than
  // trouble_say_every; OK once it takes it again.
  std::function<void(const absl::Status&)> on_trouble;
};

// Keeps one node registered with the router: registers, sends heartbeats, registers again when the router has
// forgotten it (same boot nonce, so same incarnation), and follows the map. Own thread with nothing else to
// do, so that a node busy with transfers is not taken for dead (F47). Owner: node main. Lifetime: Start once;
// Stop (or the destructor) joins.
class Registrar {
 public:
  Registrar(RegistrarOptions options, RegistrarCallbacks callbacks);
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  void Start();
  void Stop();
  // Waits for the first registration. A refusal comes back at once, with the router's reason; Unavailable
  // names the router's address and the last error when `timeout` ran out (the registrar goes on trying).
  absl::StatusOr<Registration> WaitRegistered(Nanos timeout);
  absl::Status last_error() const;  // Of the last attempt; OK while all is well.
  uint64_t heartbeats_ok() const;
  uint64_t registrations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cistern
