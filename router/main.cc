#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/hex.h"
#include "core/process_start.h"
#include "core/random.h"
#include "core/status_macros.h"
#include "core/ticket.h"
#include "core/version.h"
#include "proto/control.h"
#include "proto/daemon.h"
#include "proto/metrics_figures.h"
#include "proto/metrics_server.h"
#include "router/map_changes.h"
#include "router/router.h"
#include "router/router_options.h"
#include "router/service.h"
#include "router/state_store.h"

namespace cistern {
namespace {

constexpr int kExitUserError = 2;

absl::StatusOr<std::optional<ClusterId>> ParseClusterId(const std::string& text) {
  if (text.empty()) return std::optional<ClusterId>();
  const std::optional<ClusterId> id = IdFromHex<ClusterId>(text);
  if (!id.has_value())
    return absl::InvalidArgumentError(
        absl::StrCat("--cluster-id \"", text,
                     "\" is not 32 hex digits; without it the folder's is taken, or a new one made"));
  return id;
}

// Takes the folder's lock for the life of the process: the descriptor is never closed.
absl::Status LockFolder(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::InvalidArgumentError(absl::StrCat("--data-dir ", dir, ": ", std::strerror(errno),
                                                   "; give a folder that can be made and written"));
  }
  const std::string path = dir + "/lock";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::strerror(errno), "; be the user whose folder it is, or give another"));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("--data-dir ", dir, ": another router holds it; stop that one, or give another folder"));
  }
  return absl::OkStatus();
}

absl::Status WriteAddress(const std::string& path, const std::string& address) {
  const std::string part = path + ".part";
  std::ofstream out(part, std::ios::trunc);
  out << address << "\n";
  out.close();
  if (!out || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--address-file ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const std::string& listen,
                                                            RouterService& service) {
  CISTERN_ASSIGN_OR_RETURN(
      std::unique_ptr<MetricsServer> metrics,
      MetricsServer::Start(listen, [&service]() -> std::vector<prometheus::MetricFamily> {
        const absl::StatusOr<ClusterStatus> status = service.Status(kMetricsDeadline / 2);
        if (!status.ok()) return {};
        return RouterMetrics(*status);
      }));
  spdlog::info("figures for Prometheus at http://{}/metrics", metrics->address());
  return metrics;
}

absl::Status Serve(const RouterOptions& options, const sigset_t& stop_signals) {
  CISTERN_RETURN_IF_ERROR(CheckOpenFiles(kDaemonOpenFilesMin));
  const absl::StatusOr<HostPort> listen = ParseHostPort(options.listen, PortZero::kAnyFree);
  if (!listen.ok()) return absl::InvalidArgumentError(absl::StrCat("--listen ", listen.status().message()));
  CISTERN_ASSIGN_OR_RETURN(const std::optional<ClusterId> cluster, ParseClusterId(options.cluster_id));
  CISTERN_ASSIGN_OR_RETURN(const ClusterKey key, ClusterKey::Load(options.cluster_key_file));
  CISTERN_RETURN_IF_ERROR(LockFolder(options.data_dir));
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<StateStore> store,
                           OpenRocksdbStateStore(options.data_dir + "/state"));

  BootClock clock;
  std::random_device device;
  Random random(uint64_t{device()} << 32 | device());
  RouterConfig config;
  config.router_id = options.router_id;
  config.pid = static_cast<uint64_t>(::getpid());
  config.cluster = cluster;
  config.warn = [](const std::string& line) { spdlog::warn("{}", line); };
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<Router> router,
                           Router::Create(config, key, *store, clock, random));
  const ClusterMap& map = router->map();
  const std::string summary =
      absl::StrCat("cluster ", ToHex(map.cluster), " epoch ", map.epoch, " nodes ", map.nodes.size());
  ServiceOptions service_options;
  service_options.listen = options.listen;
  service_options.on_map = [before = map](const ClusterMap& now) mutable {
    for (const std::string& line : MapChanges(before, now)) spdlog::info("epoch {}: {}", now.epoch, line);
    before = now;
  };
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<RouterService> service,
                           RouterService::Start(service_options, std::move(router), clock));
  spdlog::info("{} listens on {}, {}", options.router_id, service->address(), summary);
  if (!IsLoopbackHost(listen->host)) {
    spdlog::warn(
        "{} is reachable from other hosts: whoever reaches it can ask for tickets; keep it inside a trusted "
        "network",
        service->address());
  }
  std::unique_ptr<MetricsServer> metrics;
  if (!options.metrics.empty()) {
    CISTERN_ASSIGN_OR_RETURN(metrics, StartMetrics(options.metrics, *service));
  }
  if (!options.address_file.empty())
    CISTERN_RETURN_IF_ERROR(WriteAddress(options.address_file, service->address()));
  int signal = 0;
  ::sigwait(&stop_signals, &signal);
  spdlog::info("{} stops on signal {}", options.router_id, signal);
  service->Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  RouterOptions options;
  CLI::App app("cistern-router: membership, placement and tickets of a cistern cluster");
  app.set_version_flag("--version", absl::StrCat("cistern-router ", kVersion));
  app.add_option("--listen", options.listen, "HOST:PORT; loopback unless told otherwise")
      ->capture_default_str();
  app.add_option("--data-dir", options.data_dir, "folder of the router's lock and state")->required();
  app.add_option("--cluster-key", options.cluster_key_file, "file with the cluster's key")->required();
  app.add_option("--cluster-id", options.cluster_id, "32 hex digits; default: the folder's, or a new one");
  app.add_option("--router-id", options.router_id, "name in status and logs")->capture_default_str();
  app.add_option("--address-file", options.address_file, "write HOST:PORT here once listening");
  app.add_option("--metrics", options.metrics,
                 "HOST:PORT that answers GET /metrics for Prometheus, to anybody");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn or error")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    std::fprintf(stderr, "cistern-router: %s; see 'cistern-router --help'\n", error.what());
    return kExitUserError;
  }
  if (!IsNodeId(options.router_id)) {
    std::fprintf(stderr, "cistern-router: --router-id: letters, digits, '.', '_' and '-' only, not first\n");
    return kExitUserError;
  }
  const sigset_t stop_signals = BlockStopSignals();
  StartLog("cistern-router", options.log_level);
  const absl::Status status = Serve(options, stop_signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cistern-router: %s\n", std::string(status.message()).c_str());
  return kExitUserError;
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) { return cistern::Main(argc, argv); }
