#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/eviction_policy.h"
#include "core/ids.h"
#include "core/ticket.h"

namespace cistern {

// Options of the `cistern-node` binary; CLI11 fills them.
struct NodeOptions {
  std::string data_dir;                   // Lock, node id and cluster id.
  std::string router = "127.0.0.1:7400";  // HOST:PORT of the router.
  std::string listen = "127.0.0.1:0";  // HOST:PORT of shard 0; port 0 lets the system choose for each shard.
  std::string advertise;               // IP address that others reach this node by; empty: that of `listen`.
  uint64_t ram_bytes = uint64_t{1} << 30;  // RAM of the node for parts, all shards together.
  uint32_t shards = 1;                     // Threads that serve, each with its share of runs and RAM.
  std::string cluster_key_path;            // File with the cluster's key.
  std::string node_id;                     // Empty: the one in data_dir, else "node-<host>-<pid>" made now.
  // "auto" and "map" listen on TCP and unix, "socket" and "ucx" on TCP alone; with `fabric` each also there.
  std::string transport = "auto";
  std::string fabric;  // HOST:PORT of shard 0 on the fabric; empty: no fabric, nothing listens there.
  std::string fabric_transports;  // UCX's transports; empty: all but shared memory and UD.
  std::string fabric_devices;     // UCX's devices; empty: all.
  bool require_rdma = false;      // Do not start without an RDMA device.
  std::string policy = kEvictionPolicyDefault;
  uint64_t nvme_bytes = 0;              // Disk logs in data_dir, all shards together; 0: none.
  bool write_through = true;            // Else parts are written when RAM has no more room for them.
  uint64_t nvme_daily_write_bytes = 0;  // What may be written to the device a day; 0: no limit.
  uint64_t hbm_bytes = 0;               // Device memory for parts, all shards together; 0: none.
  std::string hbm_device;               // "host" (a stand-in) or the number of a CUDA device.
  uint64_t hbm_move_bytes_per_s = 0;    // What promotions and demotions may move; 0: the default.
  std::string metrics;                  // HOST:PORT that answers GET /metrics; empty: nothing listens.
  std::string crash_at;                 // For tests: "POINT" or "POINT:PASS" (disk/crash_point.h).
  std::string log_level = "info";       // spdlog level.
};

// What one shard is told at its start.
struct NodeShardOptions {
  std::string node_id;
  uint32_t shard = 0;
  uint32_t shards = 1;
  uint64_t ram_bytes = uint64_t{64} << 20;  // Of this shard; at least one slab (4 MiB).
  std::string policy = kEvictionPolicyDefault;
  ClusterKey cluster_key;
  // Known once the node is registered; until then every HELLO is refused as Unavailable. See SetIdentity.
  std::optional<ClusterId> cluster;
  uint64_t incarnation = 0;
  // Wall clock in seconds, asked only when a ticket is opened; leases never depend on it (F46).
  std::function<int64_t()> unix_now;  // Null: the system's clock.
};

}  // namespace cistern
