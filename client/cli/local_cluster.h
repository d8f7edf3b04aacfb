#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/cluster_folder.h"
#include "client/cli/options.h"
#include "proto/control.h"

namespace cistern {

struct ClusterMember {
  std::string id;        // "router-1", "node-1", ...
  std::string address;   // HOST:PORT
  std::string data_dir;  // Nodes only.
  ProcessId process;
  bool started = false;  // By this call.
};

// A cluster of real processes on this machine. Start brings up what of it is not running, under the same
// identity, folders and, where they are free, ports. Owner: `up`; one thread. The processes outlive it.
class LocalCluster {
 public:
  LocalCluster(ClusterFolder& folder, const CliOptions& options) : folder_(folder), options_(options) {}
  // On failure everything this call started has been ended, and the error is one line.
  absl::Status Start();
  const ClusterMember& router() const { return router_; }
  const std::vector<ClusterMember>& nodes() const { return nodes_; }
  // Nodes that ran already, when the flags of this call differ from theirs: they keep the old ones.
  std::vector<std::string> WithOldFlags() const;
  // What the nodes that this call started warn of in their logs, each with its node's id before it.
  std::vector<std::string> NodeWarnings() const;

 private:
  absl::Status TakeSettings();
  absl::Status CheckLoneFlags() const;
  absl::Status CheckMemory() const;
  absl::Status StartRouter();
  std::string FabricOf(uint32_t node) const;
  absl::Status StartNodes();
  absl::Status WaitForRouter();
  absl::Status WaitUntilActive();
  absl::Status WaitUntilAnswering();
  void EndStarted();
  // The error of a process that ended while it was waited for, or Cancelled when the user pressed Ctrl-C (the
  // signals are blocked meanwhile); OK when waiting makes sense.
  absl::Status CheckStarted();
  absl::Status Launch(ClusterMember& member, const std::string& name, const std::string& program,
                      std::vector<std::string> args);
  // The nodes that are not active yet.
  std::vector<std::string> Missing(const ClusterStatus& status);
  void ShowProgress(const std::string& what);

  ClusterFolder& folder_;
  const CliOptions& options_;
  std::optional<ClusterSettings> kept_;  // As the folder had them before this call.
  ClusterSettings settings_;
  bool saved_ = false;  // settings_ are in the folder, though not all runs yet.
  ClusterMember router_;
  std::vector<ClusterMember> nodes_;
  std::vector<uint64_t> old_incarnations_;    // Per node, before it was started; a started one must be above.
  std::map<std::string, uint64_t> log_from_;  // Name -> where this call's output begins in its log.
  std::chrono::steady_clock::time_point deadline_;
  bool progress_ = false;
};

// OK when nobody listens on HOST:PORT of this machine; else one line that says so. What a server there would
// find.
absl::Status CheckPortFree(const std::string& address);
// The address with a free port in place of port 0; as it is where it has another port or a host that is a
// name.
std::string WithPort(const std::string& address);

}  // namespace cistern
