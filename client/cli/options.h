#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/calc_options.h"
#include "client/cli/layout_options.h"

namespace cistern {

inline constexpr char kRouterAddressDefault[] = "127.0.0.1:7400";
inline constexpr uint64_t kTraceRequestsMax = uint64_t{1} << 40;  // What --requests may say.
inline constexpr uint32_t kClusterNodesMax = 64;               // Processes that one `cistern up` may start.
inline constexpr uint32_t kClusterShardsMax = 64;              // Of each of them.
inline constexpr uint64_t kBlockBytesMin = 4096;               // Smallest --bytes-per-block.
inline constexpr uint64_t kBlockBytesMax = uint64_t{4} << 20;  // One part a block, for now.
inline constexpr uint32_t kBenchBatchMax = 16384;
inline constexpr uint32_t kReplayScaleMax = 4096;  // Of --scale.

struct UpOptions {
  uint32_t nodes = 0;       // Cache nodes; 0: what the folder has, or 2 for a new one.
  uint32_t shards = 0;      // Shards a node; 0: the node's default.
  uint64_t ram_bytes = 0;   // RAM tier of each node; 0: what the folder has, or 1G for a new one.
  uint64_t nvme_bytes = 0;  // NVMe tier of each node; 0: what the folder has, or none.
  uint64_t hbm_bytes = 0;   // HBM tier of each node; 0: what the folder has, or none.
  std::string hbm_device;   // "host", or the number of a CUDA device.
  std::string
      nvme_mode;  // "write-through" or "on-demotion"; empty: what the folder has, or the node's default.
  std::string transport;      // "auto", "map", "socket" or "ucx"; empty: the node's default.
  std::string policy;         // Eviction policy of the nodes; empty: the node's default.
  bool router_given = false;  // --router stood on the command line.
  bool detach = false;        // Print and return instead of staying in the foreground.
  uint32_t deadline_s = 60;   // For the whole cluster to be active and answering.
};

// Of `up`: the nodes' fabric. Of other commands: this client's.
struct FabricFlags {
  std::string address;        // HOST:PORT of the first node's first shard; of a client HOST. Empty: none.
  std::string transports;     // UCX's transports.
  std::string devices;        // UCX's devices.
  bool require_rdma = false;  // Fail without an RDMA device.
};

// How long what is stored is wanted.
struct KeepFlags {
  uint32_t ttl_s = 0;        // 0: as its use earns it.
  bool slides = false;       // From the last use.
  std::string pin = "none";  // "none", "soft" or "hard".
};

struct ReplayOptions {
  std::string file;    // Trace, plain or .zst.
  std::string layout;  // "plain" (empty means it), or a layout of several groups by its name.
  std::string retention = "junctions";  // Where tails are kept, in layouts that have any.
  uint32_t scale = 1;                   // Parts have 1 / scale of their bytes.
  bool dry_run = false;                 // Only what the retention policies would hit and cost.
  uint32_t block_tokens = 0;            // Tokens a block; 0: as the trace says.
  uint64_t bytes_per_block = 65536;     // Bytes of a block, one part each.
  uint64_t requests = 0;                // Only the first so many; 0: all.
  double speed = 0;                     // Time factor by the trace's time stamps; 0: as fast as answers come.
  bool verify = false;                  // Compare every loaded byte.
  KeepFlags keep;                       // Of what is stored, with plain blocks.
};

struct BenchOptions {
  std::string op;               // "read", "write", "lookup", "hash", "formats" or "disk".
  uint64_t size_bytes = 65536;  // Bytes of a part.
  uint32_t batch = 0;           // Parts an op (0: 16); blocks of the prefix for lookup and hash (0: 4096).
  uint32_t block_tokens = 16;   // Tokens a block.
  double seconds = 2;           // Measured time, all slices together.
  uint64_t data_bytes = 0;      // read: of all prefixes together; 0: kBenchDataBytes.
  uint64_t stores_bytes = 0;    // read: the same client stores so many a second meanwhile; 0: none.
  uint64_t rate_bytes = 0;      // read, write: at most so many a second; 0: as fast as it goes.
  std::string rw = "write";     // disk: "write" or "randread".
  std::string dir;       // disk: folder on the disk to measure; default the system's for temporary files.
  bool limit = false;    // Measure the physical limit in alternate slices.
  bool no_spin = false;  // Sleep while waiting, as engines do.
};

struct LookupOptions {
  std::string layout;       // "plain" (empty means it), or a layout of several groups by its name.
  std::string tokens_file;  // Numbers between blanks, commas or brackets; "-" is standard input.
  uint32_t block_tokens = 16;
  uint64_t bytes_per_block = 65536;
};

struct SimOptions {
  std::string file;                                         // Trace, plain or .zst.
  std::vector<std::string> policies;                        // Empty: all there are.
  std::vector<double> sizes = {.01, .02, .05, .1, .2, .5};  // Shares of the unique blocks, in (0, 1].
  std::vector<int64_t> ttls_ms;                             // Sliding times to live, of a memory without end.
  uint32_t nodes = 1;                                       // That the pool is split over.
  std::string flow = "plain";  // "plain" or "node": in which order policies are called.
  std::string plot;            // SVG file; empty: none.
};

struct QuotaOptions {
  std::string tenant;
  uint64_t bytes = 0;        // Of each node's RAM; 0: no limit.
  uint64_t floor_bytes = 0;  // Others take nothing from it below this.
  std::string when_full = "evict-own";
  KeepFlags retention;  // Of puts that name none.
};

struct FsckOptions {
  std::string data_dir;  // A node's data folder.
};

struct DrainOptions {
  std::string node;
  bool undo = false;  // Give it runs again.
};

// Everything that the command line and two environment variables (CISTERN_ROUTER, HOME) say. flags.cc fills
// it.
struct CliOptions {
  std::string command;                         // "up", "status", "calc trace", ...
  bool json = false;                           // Exactly one object on standard output.
  std::string router = kRouterAddressDefault;  // Where the router listens.
  std::string dir;                             // Folder of the local cluster; default ~/.cistern.
  std::string transport = "auto";              // Client's paths: "auto", "map", "socket" or "ucx".
  FabricFlags fabric;
  bool topology = false;  // `peers`: this machine's devices in place of its connections.
  UpOptions up;
  ReplayOptions replay;
  BenchOptions bench;
  LookupOptions lookup;
  CalcDataOptions calc_data;
  CalcEconomicsOptions calc_economics;
  CalcTraceOptions calc_trace;
  CalcMemoryOptions calc_memory;
  LayoutOptions layout;
  SimOptions sim;
  FsckOptions fsck;
  QuotaOptions quota;
  DrainOptions drain;
};

}  // namespace cistern
