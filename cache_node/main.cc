#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "cache_node/data_folder.h"
#include "cache_node/node_disk.h"
#include "cache_node/node_flags.h"
#include "cache_node/node_hbm.h"
#include "cache_node/node_options.h"
#include "cache_node/registrar.h"
#include "cache_node/shard_loop.h"
#include "cache_node/shard_paths.h"
#include "cache_node/slab_pool.h"
#include "core/arena.h"
#include "core/process_start.h"
#include "core/size.h"
#include "core/status_macros.h"
#include "core/version.h"
#include "proto/control.h"
#include "proto/daemon.h"
#include "proto/metrics_figures.h"
#include "proto/metrics_server.h"

namespace cistern {
namespace {

constexpr int kExitUserError = 2;
constexpr size_t kPrefaultSliceBytes = 64u << 20;
constexpr char kHowToHugePages[] =
    "; 'advise' in /sys/kernel/mm/transparent_hugepage/shmem_enabled allows them";

// Signals are blocked and only sigwait takes them; before that point one may be pending.
bool StopAsked() {
  sigset_t pending;
  return ::sigpending(&pending) == 0 &&
         (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

// Touches the whole arena before anybody is served, so that no put pays for page faults. Says how far it is.
absl::Status Prefault(std::vector<std::unique_ptr<ShardLoop>>& loops) {
  uint64_t total = 0, done = 0, told = 0;
  for (const auto& loop : loops) total += loop->shard().ram().capacity_bytes();
  std::vector<const MemoryRegion*> arenas;
  for (const auto& loop : loops) {
    const uint64_t bytes =
        loop->shard().ram().capacity_bytes();  // Trailers are touched as slots come into use.
    loop->shard().arena().PreferHugePages(0, bytes);
    for (uint64_t at = 0; at < bytes; at += kPrefaultSliceBytes) {
      if (StopAsked()) return absl::OkStatus();
      const uint64_t slice = std::min<uint64_t>(kPrefaultSliceBytes, bytes - at);
      CISTERN_RETURN_IF_ERROR(loop->shard().arena().Populate(at, slice));
      done += slice;
      if ((done - told) * 10 >= total && done < total && total >= uint64_t{1} << 30) {
        told = done;
        spdlog::info("arena: {} of {} MiB touched", done >> 20, total >> 20);
      }
    }
    arenas.push_back(&loop->shard().arena());
  }
  const uint64_t huge = MemoryRegion::HugePageBytes(arenas);
  spdlog::info("arena: {} MiB ready, {} of them in huge pages{}", total >> 20, huge >> 20,
               huge != 0 ? "" : kHowToHugePages);
  return absl::OkStatus();
}

NodeReport MakeReport(std::vector<std::unique_ptr<ShardLoop>>& loops) {
  BootClock clock;
  NodeReport report;
  for (const auto& loop : loops) {
    MergeStats(loop->LatestStats(), report.stats);
    report.shard_last_poll_ms_ago.push_back(
        static_cast<uint64_t>(std::max<Nanos>(clock.Now() - loop->last_poll(), 0) / kMillisecond));
  }
  return report;
}

// Null without --metrics.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const std::string& listen,
                                                            std::vector<std::unique_ptr<ShardLoop>>& loops) {
  if (listen.empty()) return std::unique_ptr<MetricsServer>();
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics, MetricsServer::Start(listen, [&loops] {
                             const NodeReport report = MakeReport(loops);
                             return NodeMetrics(report.stats, report.shard_last_poll_ms_ago);
                           }));
  spdlog::info("figures for Prometheus at http://{}/metrics", metrics->address());
  return metrics;
}

// Why the registrar ended, when it did; said by its thread, read by main after the signal that it sends.
struct Refusal {
  absl::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

RegistrarCallbacks MakeCallbacks(const std::string& router, std::vector<std::unique_ptr<ShardLoop>>& loops,
                                 DataFolder& folder, Refusal& refusal) {
  RegistrarCallbacks callbacks;
  callbacks.report = [&loops] { return MakeReport(loops); };
  const auto refuse = [&refusal](const absl::Status& why) {
    {
      const absl::MutexLock lock(&refusal.mutex);
      refusal.status = why;
    }
    ::kill(::getpid(), SIGTERM);
  };
  callbacks.on_refused = refuse;
  callbacks.on_trouble = [&folder, router](const absl::Status& why) {
    if (why.ok()) {
      spdlog::info("{}: the router at {} takes it again", folder.node_id(), router);
    } else {
      spdlog::warn("{}: the router at {} does not take it, it goes on trying: {}", folder.node_id(), router,
                   std::string(why.message()));
    }
  };
  callbacks.on_registered = [&loops, &folder, refuse](const Registration& registration) {
    if (const absl::Status kept = folder.SetCluster(registration.cluster); !kept.ok()) return refuse(kept);
    spdlog::info("{} is registered: cluster {} incarnation {}", folder.node_id(),
                 ToHex(registration.cluster, 4), registration.incarnation);
    for (const auto& loop : loops) {
      const bool posted = loop->Post([registration](NodeShard& shard) {
        shard.SetIdentity(registration.cluster, registration.incarnation);
      });
      if (!posted) return refuse(absl::ResourceExhaustedError("a shard's mailbox is full: it does not run"));
    }
  };
  callbacks.on_map = [](const ClusterMap& map) { spdlog::debug("cluster map of epoch {}", map.epoch); };
  return callbacks;
}

absl::Status AttachDisk(const NodeOptions& options, Clock& clock, uint32_t index, NodeShard& shard) {
  if (options.nvme_bytes == 0) return absl::OkStatus();
  if (!options.crash_at.empty()) CISTERN_RETURN_IF_ERROR(ArmCrashFlag(options.crash_at));
  std::random_device device;
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<DiskTier> disk,
                           OpenNodeDisk(options, index, clock, uint64_t{device()} << 32 | device()));
  shard.AttachDisk(std::move(disk));
  return absl::OkStatus();
}

// What each shard has above and below its RAM. The disk first: what leaves the device asks it.
absl::Status AttachTiers(const NodeOptions& options, Clock& clock, Random& random,
                         std::vector<std::unique_ptr<ShardLoop>>& loops) {
  if (options.nvme_bytes != 0) CISTERN_RETURN_IF_ERROR(PrepareShardFolders(options));
  for (uint32_t i = 0; i < options.shards; ++i) {
    CISTERN_RETURN_IF_ERROR(AttachDisk(options, clock, i, loops[i]->shard()));
    if (options.hbm_bytes == 0) continue;
    CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<HbmTier> hbm, OpenNodeHbm(options, clock, random));
    loops[i]->shard().AttachHbm(std::move(hbm));
  }
  return absl::OkStatus();
}

// Who this node is, as flags and folder say, and the cluster's key.
absl::StatusOr<ClusterKey> Identify(DataFolder& folder, NodeOptions& options) {
  if (options.node_id.empty()) options.node_id = folder.node_id();
  if (options.node_id.empty()) {
    std::random_device device;
    options.node_id = absl::StrCat("node-", absl::Hex(uint64_t{device()} << 32 | device(), absl::kZeroPad16));
  }
  if (options.cluster_key_path.empty()) options.cluster_key_path = FindClusterKey(options.data_dir);
  if (options.cluster_key_path.empty()) {
    return absl::InvalidArgumentError("--cluster-key is needed: no cluster.key in or above the data folder");
  }
  absl::StatusOr<ClusterKey> key = ClusterKey::Load(options.cluster_key_path);
  if (key.ok()) CISTERN_RETURN_IF_ERROR(folder.SetNodeId(options.node_id));
  return key;
}

absl::Status Serve(NodeOptions options, const sigset_t& stop_signals) {
  CISTERN_RETURN_IF_ERROR(ValidateNodeOptions(options));
  // The folder first: whatever else is wrong, two processes on one folder is the answer that matters.
  CISTERN_ASSIGN_OR_RETURN(DataFolder folder, DataFolder::Open(options.data_dir));
  CISTERN_ASSIGN_OR_RETURN(const ClusterKey key, Identify(folder, options));

  // All shards together: each arena alone would fit until its pages are touched.
  const uint64_t needed = SlabPool::RegionBytes(options.ram_bytes / options.shards) * options.shards +
                          DiskMemoryBytes(options) + (options.hbm_device == "host" ? options.hbm_bytes : 0);
  if (const uint64_t available = AvailableMemoryBytes(); available < needed) {
    return absl::ResourceExhaustedError(absl::StrCat("--ram needs ", needed >> 20, " MiB, this machine has ",
                                                     available >> 20, " MiB available; give less"));
  }
  BootClock disk_clock;
  CISTERN_ASSIGN_OR_RETURN(const std::shared_ptr<FabricDomain> fabric, OpenNodeFabric(options));
  std::vector<std::unique_ptr<ShardLoop>> loops;
  RegistrarOptions registrar_options;
  for (uint32_t i = 0; i < options.shards; ++i) {
    NodeShardOptions shard;
    shard.node_id = options.node_id;
    shard.shard = i;
    shard.shards = options.shards;
    shard.ram_bytes = options.ram_bytes / options.shards;
    shard.policy = options.policy;
    shard.cluster_key = key;
    registrar_options.shards.emplace_back();
    CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<ShardLoop> loop,
                             MakeShard(options, shard, fabric, registrar_options.shards.back()));
    const ShardAddress& at = registrar_options.shards.back();
    spdlog::info("{} shard {} listens on {}, unix {}, fabric {}", options.node_id, i, at.tcp,
                 at.unix_name.empty() ? "-" : at.unix_name, at.fabric.empty() ? "-" : at.fabric);
    loops.push_back(std::move(loop));
  }
  if (!IsLoopbackHost(ParseHostPort(options.listen, PortZero::kAnyFree)->host)) {
    spdlog::warn("{} can be reached from other hosts; its frames are authenticated but not encrypted",
                 options.listen);
  }
  Random random(std::random_device{}());
  CISTERN_RETURN_IF_ERROR(AttachTiers(options, disk_clock, random, loops));
  CISTERN_RETURN_IF_ERROR(Prefault(loops));
  for (const auto& loop : loops) PinForDevice(loop->shard());
  for (const auto& loop : loops) CISTERN_RETURN_IF_ERROR(loop->RegisterArena());
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics, StartMetrics(options.metrics, loops));

  registrar_options.router = options.router;
  registrar_options.node_id = options.node_id;
  registrar_options.key = key;
  registrar_options.expected_cluster = folder.cluster();
  registrar_options.place = folder.place();
  registrar_options.ram_bytes = options.ram_bytes;
  Refusal refusal;
  for (const auto& loop : loops) loop->Start();
  Registrar registrar(registrar_options, MakeCallbacks(options.router, loops, folder, refusal));
  registrar.Start();
  int signal = 0;
  ::sigwait(&stop_signals, &signal);
  registrar.Stop();
  for (const auto& loop : loops) loop->Stop();
  metrics.reset();  // Last: it takes seconds.
  const absl::MutexLock lock(&refusal.mutex);
  if (refusal.status.ok()) spdlog::info("{} stops on signal {}", options.node_id, signal);
  return refusal.status;
}

// Sizes as they are written on the command line.
struct SizeFlags {
  std::string ram = "1G", nvme = "0", nvme_daily_writes = "0", hbm = "0", hbm_bandwidth = "4G";
};

absl::Status TakeSizes(const SizeFlags& flags, NodeOptions& options) {
  const auto take = [](const char* flag, const std::string& text, uint64_t& bytes) -> absl::Status {
    const std::optional<uint64_t> size = ParseSize(text);
    if (!size.has_value())
      return absl::InvalidArgumentError(absl::StrCat(flag, " \"", text, "\" is no size like 512M or 3G"));
    bytes = *size;
    return absl::OkStatus();
  };
  CISTERN_RETURN_IF_ERROR(take("--ram", flags.ram, options.ram_bytes));
  CISTERN_RETURN_IF_ERROR(take("--nvme", flags.nvme, options.nvme_bytes));
  CISTERN_RETURN_IF_ERROR(take("--hbm", flags.hbm, options.hbm_bytes));
  CISTERN_RETURN_IF_ERROR(take("--hbm-bandwidth", flags.hbm_bandwidth, options.hbm_move_bytes_per_s));
  return take("--nvme-daily-writes", flags.nvme_daily_writes, options.nvme_daily_write_bytes);
}

void AddDiskFlags(CLI::App& app, NodeOptions& options, SizeFlags& sizes) {
  app.add_option("--nvme", sizes.nvme, "disk log in the data folder: 10G; 0: none")->capture_default_str();
  CLI::Option* through = app.add_flag_callback(
      "--write-through", [&options] { options.write_through = true; },
      "parts go to the disk log when they are stored (default)");
  app.add_flag_callback(
         "--on-demotion", [&options] { options.write_through = false; },
         "parts go to the disk log when RAM has no more room for them")
      ->excludes(through);
  app.add_option("--nvme-daily-writes", sizes.nvme_daily_writes,
                 "what may be written to the device a day, for its endurance; 0: no limit")
      ->capture_default_str();
  app.add_option("--hbm", sizes.hbm, "device memory for parts, all shards together: 64G; 0: none")
      ->capture_default_str();
  app.add_option("--hbm-device", options.hbm_device,
                 "where --hbm is: the number of a CUDA device, or host for a stand-in of host memory");
  app.add_option("--hbm-bandwidth", sizes.hbm_bandwidth,
                 "what moves between HBM and RAM may take a second; plans that wait are served first")
      ->capture_default_str();
  app.add_option("--crash-at", options.crash_at, "for tests: end at this place of the write path")->group("");
}

void AddFlags(CLI::App& app, NodeOptions& options, SizeFlags& sizes) {
  app.set_version_flag("--version", absl::StrCat("cistern-node ", kVersion));
  AddDiskFlags(app, options, sizes);
  app.add_option("--data-dir", options.data_dir, "folder of the node's lock and ids; made when missing")
      ->required();
  app.add_option("--router", options.router, "HOST:PORT of the router")->capture_default_str();
  app.add_option("--listen", options.listen,
                 "HOST:PORT of shard 0, further shards on the ports behind it; port 0: any free ones")
      ->capture_default_str();
  app.add_option("--advertise", options.advertise,
                 "IP address that others reach this node by; default: that of --listen");
  app.add_option("--ram", sizes.ram, "RAM for parts, all shards together: 512M, 3G (powers of 1024)")
      ->capture_default_str();
  app.add_option("--shards", options.shards, "threads that serve")->capture_default_str();
  app.add_option("--cluster-key", options.cluster_key_path,
                 "file with the cluster's key; default: cluster.key in or above the data folder");
  app.add_option("--node-id,--id", options.node_id, "default: the folder's, or a new one");
  app.add_option("--transport", options.transport,
                 "auto and map: TCP and unix with shared memory; socket: TCP alone; ucx: TCP and the fabric. "
                 "A fabric that --fabric names is offered with each")
      ->check(CLI::IsMember({"auto", "map", "socket", "ucx"}))
      ->capture_default_str();
  app.add_option(
      "--fabric", options.fabric,
      "HOST:PORT of shard 0 on the fabric (UCX: RDMA and others), further shards on the ports behind "
      "it; without it nothing listens there");
  app.add_option("--fabric-transports", options.fabric_transports,
                 "UCX's transports, as in \\rc_verbs; default: all but shared memory and UD");
  app.add_option("--fabric-devices", options.fabric_devices, "UCX's devices, as in mlx5_0:1; default: all");
  app.add_flag("--require-rdma", options.require_rdma, "do not start without an RDMA device");
  app.add_option("--metrics", options.metrics,
                 "HOST:PORT that answers GET /metrics for Prometheus, to anybody");
  app.add_option("--policy", options.policy, "eviction policy")->capture_default_str();
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
}

int Fail(const std::string& message) {
  std::string line = message;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  std::fprintf(stderr, "cistern-node: %s\n", line.c_str());
  return kExitUserError;
}

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  NodeOptions options;
  SizeFlags sizes;
  CLI::App app("cistern-node: keeps KV blocks in RAM and serves them to clients of its cluster");
  AddFlags(app, options, sizes);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    return Fail(absl::StrCat(error.what(), "; see 'cistern-node --help'"));
  }
  if (const absl::Status enough = CheckOpenFiles(kDaemonOpenFilesMin); !enough.ok())
    return Fail(std::string(enough.message()));
  absl::Status taken = TakeSizes(sizes, options);
  if (taken.ok()) taken = CheckLoneFlags(options, [&app](const char* flag) { return app.count(flag) > 0; });
  if (!taken.ok()) return Fail(std::string(taken.message()));
  const sigset_t stop_signals = BlockStopSignals();
  StartLog("cistern-node", options.log_level);
  const absl::Status status = Serve(std::move(options), stop_signals);
  return status.ok() ? 0 : Fail(std::string(status.message()));
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) { return cistern::Main(argc, argv); }
