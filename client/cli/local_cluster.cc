#include "client/cli/local_cluster.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/control/router_link.h"
#include "client/internal/admin.h"
#include "core/arena.h"
#include "core/host_port.h"
#include "core/status_macros.h"
#include "transport/socket_address.h"

namespace cistern {
namespace {

using std::chrono::steady_clock;
constexpr int kPollEveryMs = 20;
constexpr Nanos kStatusDeadline = 1 * kSecond;
constexpr std::chrono::milliseconds kAnswerDeadline{1000};
constexpr int kEndPatienceMs = 5000;

void Pause() { poll(nullptr, 0, kPollEveryMs); }

}  // namespace

absl::Status CheckPortFree(const std::string& address) {
  const absl::StatusOr<SocketAddress> at = SocketAddress::Parse("tcp:" + address);
  if (!at.ok()) return absl::OkStatus();  // A name: the server will tell.
  const absl::Status listened = at->Listen().status();
  if (listened.ok()) return absl::OkStatus();
  if (absl::IsUnavailable(listened)) {
    return absl::AlreadyExistsError(
        address + " is in use by another process; give another --router HOST:PORT, or end it");
  }
  return absl::UnavailableError(
      absl::StrCat("cannot ", listened.message(), "; give another --router HOST:PORT"));
}

std::string WithPort(const std::string& address) {
  const absl::StatusOr<HostPort> wanted = ParseHostPort(address, PortZero::kAnyFree);
  if (!wanted.ok() || wanted->port != 0) return address;
  const absl::StatusOr<SocketAddress> at = SocketAddress::Parse("tcp:" + address);
  const absl::StatusOr<UniqueFd> listener = at.ok() ? at->Listen() : at.status();
  const absl::StatusOr<std::string> bound = listener.ok() ? BoundAddress(listener->get()) : listener.status();
  if (!bound.ok()) return address;
  return HostPort{wanted->host, ParseHostPort(bound->substr(sizeof("tcp:") - 1))->port}.ToString();
}

absl::Status LocalCluster::Start() {
  deadline_ = steady_clock::now() + std::chrono::seconds(options_.up.deadline_s);
  progress_ = isatty(STDERR_FILENO) != 0;
  absl::Status started = [this] {
    CISTERN_RETURN_IF_ERROR(TakeSettings());
    CISTERN_RETURN_IF_ERROR(StartRouter());
    CISTERN_RETURN_IF_ERROR(WaitForRouter());
    CISTERN_RETURN_IF_ERROR(StartNodes());
    CISTERN_RETURN_IF_ERROR(WaitUntilActive());
    CISTERN_RETURN_IF_ERROR(WaitUntilAnswering());
    return folder_.Save(settings_);
  }();
  if (progress_) std::fprintf(stderr, "\r\033[K");
  if (!started.ok()) {
    EndStarted();
    // Flags that could not start are not taken over by the next call.
    if (saved_ && kept_) folder_.Save(*kept_).IgnoreError();
    if (saved_ && !kept_) folder_.ForgetSettings();
  }
  return started;
}

absl::Status LocalCluster::TakeSettings() {
  CISTERN_ASSIGN_OR_RETURN(kept_, folder_.Load());
  settings_ = kept_.value_or(ClusterSettings{});
  const UpOptions& up = options_.up;
  if (kept_ && up.router_given && options_.router != kept_->router) {
    return absl::FailedPreconditionError("the cluster in " + folder_.dir() + " has its router at " +
                                         kept_->router + ", not " + options_.router +
                                         "; leave --router out, or give another --dir");
  }
  if (kept_ && up.nodes != 0 && up.nodes < kept_->nodes) {
    return absl::FailedPreconditionError("the cluster in " + folder_.dir() + " has " +
                                         std::to_string(kept_->nodes) +
                                         " nodes and cannot shrink yet; give --nodes " +
                                         std::to_string(kept_->nodes) + " or more, or another --dir");
  }
  if (!kept_) settings_.router = options_.router;
  if (up.nodes != 0) settings_.nodes = up.nodes;
  if (up.shards != 0) settings_.shards = up.shards;
  if (up.ram_bytes != 0) settings_.ram_bytes = up.ram_bytes;
  if (settings_.ram_bytes == 0) settings_.ram_bytes = kClusterRamDefault;
  if (up.nvme_bytes != 0) settings_.nvme_bytes = up.nvme_bytes;
  if (up.hbm_bytes != 0) settings_.hbm_bytes = up.hbm_bytes;
  if (!up.hbm_device.empty()) settings_.hbm_device = up.hbm_device;
  if (!up.nvme_mode.empty()) settings_.nvme_mode = up.nvme_mode;
  if (!up.transport.empty()) settings_.transport = up.transport;
  const FabricFlags& fabric = options_.fabric;
  if (!fabric.address.empty()) settings_.fabric = fabric.address;
  if (!fabric.transports.empty()) settings_.fabric_transports = fabric.transports;
  if (!fabric.devices.empty()) settings_.fabric_devices = fabric.devices;
  settings_.require_rdma |= fabric.require_rdma;
  CISTERN_RETURN_IF_ERROR(CheckLoneFlags());
  if (settings_.fabric.empty() && (settings_.transport == "ucx" || settings_.require_rdma)) {
    return absl::InvalidArgumentError(
        "--transport ucx and --require-rdma need --fabric HOST:PORT; on this host alone: --fabric "
        "127.0.0.1:0");
  }
  if (!up.policy.empty()) settings_.policy = up.policy;

  router_ = {.id = "router-1", .address = settings_.router, .data_dir = "", .process = {}, .started = false};
  router_.process = folder_.Recorded("router").value_or(ProcessId{});
  for (uint32_t i = 1; i <= settings_.nodes; ++i) {
    const std::string id = "node-" + std::to_string(i);
    nodes_.push_back({.id = id,
                      .address = settings_.addresses[id],
                      .data_dir = folder_.NodeData(id),
                      .process = {},
                      .started = false});
    nodes_.back().process = folder_.Recorded(id).value_or(ProcessId{});
  }
  old_incarnations_.assign(nodes_.size(), 0);
  return CheckMemory();
}

// A node refuses what does not fit when it starts, and then touches it little by little: several that start
// together would each find the same free memory, and take the machine's last together.
absl::Status LocalCluster::CheckMemory() const {
  const auto starting = static_cast<uint64_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return !IsAlive(node.process); }));
  if (starting < 2) return absl::OkStatus();  // The node's own answer is exact.
  const uint64_t each = settings_.ram_bytes + (settings_.hbm_device == "host" ? settings_.hbm_bytes : 0);
  const uint64_t available = AvailableMemoryBytes();
  if (available / starting >= each) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      starting, " nodes of --ram ", settings_.ram_bytes >> 20, " MiB each need more than the ",
      available >> 20, " MiB that this machine has available; give a smaller --ram or fewer --nodes"));
}

std::vector<std::string> LocalCluster::WithOldFlags() const {
  std::vector<std::string> ids;
  if (!kept_) return ids;
  ClusterSettings before = *kept_;
  before.nodes = settings_.nodes;
  before.addresses = settings_.addresses;
  if (before == settings_) return ids;
  for (const ClusterMember& node : nodes_) {
    if (!node.started) ids.push_back(node.id);
  }
  return ids;
}

// What was given now, and does nothing with what the cluster has.
absl::Status LocalCluster::CheckLoneFlags() const {
  const FabricFlags& fabric = options_.fabric;
  const bool no_fabric = settings_.fabric.empty();
  const struct {
    bool lone;
    std::string flag, needs;
  } pairs[] = {
      {!options_.up.nvme_mode.empty() && settings_.nvme_bytes == 0, "--" + options_.up.nvme_mode,
       "--nvme SIZE"},
      {!options_.up.hbm_device.empty() && settings_.hbm_bytes == 0, "--hbm-device", "--hbm SIZE"},
      {!fabric.transports.empty() && no_fabric, "--fabric-transports", "--fabric HOST:PORT"},
      {!fabric.devices.empty() && no_fabric, "--fabric-devices", "--fabric HOST:PORT"},
  };
  for (const auto& pair : pairs) {
    if (!pair.lone) continue;
    return absl::InvalidArgumentError(pair.flag + " does nothing without " + pair.needs +
                                      "; give that too, or leave " + pair.flag + " away");
  }
  return absl::OkStatus();
}

std::vector<std::string> LocalCluster::NodeWarnings() const {
  std::vector<std::string> lines;
  for (const ClusterMember& node : nodes_) {
    if (!node.started) continue;
    for (const std::string& line : Warnings(folder_.Log(node.id), log_from_.at(node.id)))
      lines.push_back(node.id + ": " + line);
  }
  return lines;
}

absl::Status LocalCluster::Launch(ClusterMember& member, const std::string& name, const std::string& program,
                                  std::vector<std::string> args) {
  const std::string path = ProgramFolder() + "/" + program;
  if (!std::filesystem::exists(path)) {
    return absl::NotFoundError(path + " is missing; build it or install it beside cistern");
  }
  log_from_[name] = FileBytes(folder_.Log(name));
  CISTERN_ASSIGN_OR_RETURN(member.process,
                           Spawn({.program = path, .args = std::move(args), .log = folder_.Log(name)}));
  member.started = true;
  return folder_.Record(name, member.process);
}

absl::Status LocalCluster::StartRouter() {
  CISTERN_ASSIGN_OR_RETURN(const std::string key, folder_.KeyFile());
  if (IsAlive(router_.process)) return absl::OkStatus();
  CISTERN_RETURN_IF_ERROR(CheckPortFree(settings_.router));
  CISTERN_RETURN_IF_ERROR(folder_.Save(settings_));  // From here on `down` finds what runs.
  saved_ = true;
  std::vector<std::string> args = {
      "--listen", settings_.router, "--data-dir", folder_.RouterState(), "--cluster-key", key};
  // A router that lost its state would make a new cluster, and nodes keep out of others' clusters.
  if (const std::string cluster = folder_.ClusterOfNodes(); !folder_.HasRouterState() && !cluster.empty())
    args.insert(args.end(), {"--cluster-id", cluster});
  return Launch(router_, "router", "cistern-router", std::move(args));
}

absl::Status LocalCluster::WaitForRouter() {
  while (true) {
    CISTERN_RETURN_IF_ERROR(CheckStarted());
    CISTERN_RETURN_IF_ERROR(StartRouter());  // What was just killed may have looked alive before.
    const absl::StatusOr<ClusterStatus> status = FetchClusterStatus(settings_.router, kStatusDeadline);
    if (status.ok()) {
      for (const NodeRecord& record : status->nodes) {
        const auto at = std::find_if(nodes_.begin(), nodes_.end(),
                                     [&](const auto& node) { return node.id == record.entry.id; });
        if (at != nodes_.end())
          old_incarnations_[static_cast<size_t>(at - nodes_.begin())] = record.entry.incarnation;
      }
      return absl::OkStatus();
    }
    if (steady_clock::now() > deadline_) {
      return absl::DeadlineExceededError("the router does not answer: " + Words(status.status()) + "; see " +
                                         folder_.Log("router"));
    }
    ShowProgress("waiting for the router");
    Pause();
  }
}

// The fabric's ports follow each other over nodes and their shards, unless the system chooses.
std::string LocalCluster::FabricOf(uint32_t node) const {
  const absl::StatusOr<HostPort> first = ParseHostPort(settings_.fabric, PortZero::kAnyFree);
  if (!first.ok() || first->port == 0) return settings_.fabric;  // The node says what is wrong with it.
  const uint32_t port = first->port + node * std::max(settings_.shards, uint32_t{1});
  return first->HostText() + ":" + std::to_string(port);
}

absl::Status LocalCluster::StartNodes() {
  CISTERN_ASSIGN_OR_RETURN(const std::string key, folder_.KeyFile());
  for (ClusterMember& node : nodes_) {
    if (IsAlive(node.process)) continue;
    std::error_code error;
    std::filesystem::create_directories(node.data_dir, error);
    if (error) return absl::UnavailableError("cannot make folder " + node.data_dir + ": " + error.message());
    std::vector<std::string> args = {"--data-dir",    node.data_dir, "--router", settings_.router,
                                     "--cluster-key", key,           "--id",     node.id};
    const auto add = [&args](const char* flag, std::string value) {
      args.push_back(flag);
      args.push_back(std::move(value));
    };
    // The port it had, when nobody took it meanwhile; with several shards the system chooses.
    const bool again = settings_.shards <= 1 && !node.address.empty() && CheckPortFree(node.address).ok();
    if (again) add("--listen", node.address);
    if (settings_.shards != 0) add("--shards", std::to_string(settings_.shards));
    add("--ram", std::to_string(settings_.ram_bytes));
    if (settings_.nvme_bytes != 0) add("--nvme", std::to_string(settings_.nvme_bytes));
    if (settings_.nvme_bytes != 0 && !settings_.nvme_mode.empty()) args.push_back("--" + settings_.nvme_mode);
    if (settings_.hbm_bytes != 0) add("--hbm", std::to_string(settings_.hbm_bytes));
    if (!settings_.hbm_device.empty()) add("--hbm-device", settings_.hbm_device);
    if (!settings_.transport.empty()) add("--transport", settings_.transport);
    if (!settings_.policy.empty()) add("--policy", settings_.policy);
    if (!settings_.fabric.empty()) {
      add("--fabric", FabricOf(static_cast<uint32_t>(&node - nodes_.data())));
      if (!settings_.fabric_transports.empty()) add("--fabric-transports", settings_.fabric_transports);
      if (!settings_.fabric_devices.empty()) add("--fabric-devices", settings_.fabric_devices);
      if (settings_.require_rdma) args.emplace_back("--require-rdma");
    }
    CISTERN_RETURN_IF_ERROR(Launch(node, node.id, "cistern-node", std::move(args)));
  }
  return absl::OkStatus();
}

std::vector<std::string> LocalCluster::Missing(const ClusterStatus& status) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    bool active = false;
    for (const NodeRecord& record : status.nodes) {
      const NodeState state = record.entry.state;
      const bool up = state == NodeState::kActive || state == NodeState::kDraining;
      if (record.entry.id != nodes_[i].id || !up) continue;
      if (nodes_[i].started && record.entry.incarnation <= old_incarnations_[i])
        continue;  // Its predecessor.
      if (!record.entry.shards.empty()) nodes_[i].address = record.entry.shards[0].tcp;
      settings_.addresses[nodes_[i].id] = nodes_[i].address;
      active = true;
    }
    if (!active) missing.push_back(nodes_[i].id);
  }
  ShowProgress(std::to_string(nodes_.size() - missing.size()) + " of " + std::to_string(nodes_.size()) +
               " nodes active");
  return missing;
}

absl::Status LocalCluster::WaitUntilActive() {
  std::vector<std::string> missing = {nodes_[0].id};
  while (true) {
    CISTERN_RETURN_IF_ERROR(CheckStarted());
    CISTERN_RETURN_IF_ERROR(StartNodes());  // Likewise.
    const absl::StatusOr<ClusterStatus> status = FetchClusterStatus(settings_.router, kStatusDeadline);
    if (status.ok()) missing = Missing(*status);
    if (missing.empty()) return absl::OkStatus();
    if (steady_clock::now() > deadline_) {
      const std::string said = LastLine(folder_.Log(missing[0]), log_from_[missing[0]]);
      return absl::DeadlineExceededError(
          absl::StrCat(absl::StrJoin(missing, ", "), " did not become active within ", options_.up.deadline_s,
                       " s; see ", folder_.Log(missing[0]), said.empty() ? "" : ", which ends with: ", said,
                       "; where it only needs longer, give a larger --deadline-s"));
    }
    Pause();
  }
}

absl::Status LocalCluster::WaitUntilAnswering() {
  CliOptions options = options_;
  options.router = settings_.router;
  options.transport = "auto";
  options.fabric = {};  // Over sockets: whether the fabric carries anything is another question.
  Result<std::unique_ptr<Client>> client = ConnectClient(options);
  if (!client.ok()) return absl::UnavailableError(client.status().message());
  for (const ClusterMember& node : nodes_) {
    while (true) {
      CISTERN_RETURN_IF_ERROR(CheckStarted());
      const absl::Status answered =
          internal::FetchNodeStats(*client.value(), node.id, kAnswerDeadline).status();
      if (answered.ok()) break;
      if (steady_clock::now() > deadline_) {
        return absl::DeadlineExceededError(node.id + " is active but does not answer: " + Words(answered) +
                                           "; see " + folder_.Log(node.id));
      }
      ShowProgress("waiting for " + node.id + " to answer");
      Pause();
      if (!IsAlive(node.process) && !node.started) CISTERN_RETURN_IF_ERROR(WaitUntilActive());
    }
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::CheckStarted() {
  sigset_t pending;
  if (sigpending(&pending) == 0 &&
      (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1)) {
    return absl::CancelledError("interrupted; what had been started was ended");
  }
  const auto check = [this](const ClusterMember& member, const std::string& name) {
    if (!member.started || IsAlive(member.process)) return absl::OkStatus();
    const std::string how = TryReap(member.process.pid).value_or("unknown end");
    // What the process said itself is the best one line there is; without it, where to look.
    const std::string said = LastLine(folder_.Log(name), log_from_[name]);
    return absl::UnavailableError(member.id + " did not start (" + how + "): " +
                                  (said.empty() ? "it said nothing; see " + folder_.Log(name) : said));
  };
  CISTERN_RETURN_IF_ERROR(check(router_, "router"));
  for (const ClusterMember& node : nodes_) CISTERN_RETURN_IF_ERROR(check(node, node.id));
  return absl::OkStatus();
}

void LocalCluster::EndStarted() {
  std::vector<ProcessId> started;
  for (const ClusterMember& node : nodes_) {
    if (!node.started) continue;
    started.push_back(node.process);
    folder_.Forget(node.id);
  }
  if (router_.started) {
    started.push_back(router_.process);
    folder_.Forget("router");
  }
  EndProcesses(started, kEndPatienceMs);
}

void LocalCluster::ShowProgress(const std::string& what) {
  if (progress_) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

}  // namespace cistern
