#include <signal.h>
#include <time.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/cli/cluster_folder.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/local_cluster.h"
#include "client/cli/output.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr int kDownPatienceMs = 8000;  // Then SIGKILL: a cache has nothing to save that is worth more.
constexpr long kWatchEveryNs = 500'000'000;

Json ClusterJson(const std::string& dir, const LocalCluster& cluster) {
  Json out;
  out["dir"] = dir;
  out["router"] = Json{{"id", cluster.router().id},
                       {"pid", cluster.router().process.pid},
                       {"address", cluster.router().address}};
  out["nodes"] = Json::array();
  for (const ClusterMember& node : cluster.nodes()) {
    out["nodes"].push_back(Json{{"id", node.id},
                                {"pid", node.process.pid},
                                {"address", node.address},
                                {"data_dir", node.data_dir},
                                {"started", node.started}});
  }
  return out;
}

std::string ClusterText(const LocalCluster& cluster) {
  std::vector<std::vector<std::string>> rows = {{"id", "pid", "address", "state"}};
  const auto add = [&rows](const ClusterMember& member) {
    rows.push_back({member.id, std::to_string(member.process.pid), member.address,
                    member.started ? "started" : "was running"});
  };
  add(cluster.router());
  for (const ClusterMember& node : cluster.nodes()) add(node);
  return FormatTable(rows);
}

// Ends everything that the folder has on record; what could not be told to be alive or gone stays there. The
// lock must be held.
Json EndAll(const ClusterFolder& folder) {
  std::vector<std::string> names = folder.RecordedNames();
  std::vector<ProcessId> processes;
  processes.reserve(names.size());
  for (const std::string& name : names) processes.push_back(folder.Recorded(name).value_or(ProcessId{}));
  const std::vector<std::string> how = EndProcesses(processes, kDownPatienceMs);
  Json stopped = Json::array();
  for (size_t i = 0; i < names.size(); ++i) {
    if (how[i] != "unknown") folder.Forget(names[i]);
    const std::string id = names[i] == "router" ? "router-1" : names[i];
    stopped.push_back(Json{{"id", id}, {"pid", processes[i].pid}, {"how", how[i]}});
  }
  return stopped;
}

// The exit code after EndAll.
int Ended(const Json& stopped) {
  for (const Json& row : stopped) {
    if (row["how"] != "unknown") continue;
    return Fail(false,
                row["id"].get<std::string>() + " (pid " + row["pid"].dump() +
                    ") may still run: /proc cannot be read; raise `ulimit -n` and call 'cistern down' again");
  }
  return kExitDone;
}

// Stays until Ctrl-C or SIGTERM; says once when a process of the cluster ends by itself.
void StayInForeground(const LocalCluster& cluster, const sigset_t& signals) {
  std::vector<ClusterMember> watched = cluster.nodes();
  watched.push_back(cluster.router());
  const timespec pause{0, kWatchEveryNs};
  while (sigtimedwait(&signals, nullptr, &pause) < 0) {
    for (ClusterMember& member : watched) {
      if (member.process.pid == 0 || IsAlive(member.process)) continue;
      const std::string how = TryReap(member.process.pid).value_or("ended");
      Note(member.id + " is gone (" + how + "); 'cistern up' with the same --dir starts it again");
      member.process = {};
    }
  }
}

}  // namespace

int RunUp(const CliOptions& given) {
  CliOptions options = given;
  // A port that is taken must not leave a folder behind.
  if (!ClusterFolder::Exists(options.dir)) {
    options.router = WithPort(options.router);
    if (options.router.ends_with(":0")) {
      return Fail(options.json,
                  "--router " + options.router + ": a free port is found for an IPv4 address only");
    }
    if (const absl::Status free = CheckPortFree(options.router); !free.ok())
      return Fail(options.json, Words(free));
  } else if (options.router.ends_with(":0")) {
    options.up.router_given = false;  // It has its port.
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // Before the first thread: Ctrl-C during the start is seen there, and what was started is ended first.
  sigprocmask(SIG_BLOCK, &signals, nullptr);

  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(options.dir);
  if (!folder.ok()) return Fail(options.json, Words(folder.status()));
  LocalCluster cluster(*folder, options);
  if (const absl::Status started = cluster.Start(); !started.ok()) return Fail(options.json, Words(started));
  PrintResult(options.json, ClusterJson(folder->dir(), cluster), ClusterText(cluster));
  if (const std::vector<std::string> old = cluster.WithOldFlags(); !old.empty()) {
    Note(absl::StrJoin(old, ", ") +
         (old.size() == 1 ? " runs on with the flags it was" : " run on with the flags they were") +
         " started with; 'cistern down', then 'cistern up' gives the new ones");
  }
  for (const std::string& line : cluster.NodeWarnings()) Note(line);
  folder->Unlock();
  if (options.up.detach) return kExitDone;

  if (!options.json) Note("Ctrl-C ends the cluster; --detach would leave it running");
  StayInForeground(cluster, signals);
  absl::StatusOr<ClusterFolder> again = ClusterFolder::Open(options.dir);
  if (!again.ok()) return Fail(options.json, Words(again.status()));
  return Ended(EndAll(*again));
}

int RunDown(const CliOptions& options) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Open(options.dir);
  if (!folder.ok()) return Fail(options.json, Words(folder.status()));
  Json out{{"dir", folder->dir()}, {"stopped", EndAll(*folder)}};
  std::vector<std::vector<std::string>> rows = {{"id", "pid", "how"}};
  for (const Json& row : out["stopped"]) {
    rows.push_back({row["id"].get<std::string>(), row["pid"].dump(), row["how"].get<std::string>()});
  }
  PrintResult(options.json, out, rows.size() == 1 ? "nothing was running\n" : FormatTable(rows));
  return Ended(out["stopped"]);
}

}  // namespace cistern
