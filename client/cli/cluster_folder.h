#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/process.h"

namespace cistern {

inline constexpr uint32_t kClusterNodesDefault = 2;
inline constexpr uint64_t kClusterRamDefault = uint64_t{1} << 30;  // Of each node.

// What a local cluster was started with; `up` with the same folder starts what is missing in the same way.
struct ClusterSettings {
  std::string router;  // HOST:PORT
  uint32_t nodes = kClusterNodesDefault;
  uint32_t shards = 0;  // 0 and empty: the node's own default.
  uint64_t ram_bytes = 0;
  uint64_t nvme_bytes = 0;
  std::string nvme_mode;
  uint64_t hbm_bytes = 0;
  std::string hbm_device;
  std::string transport;
  std::string fabric;  // As given to `up`; each node's own follows from it.
  std::string fabric_transports;
  std::string fabric_devices;
  bool require_rdma = false;
  std::string policy;
  std::map<std::string, std::string> addresses;  // Node id -> HOST:PORT it had; taken again when free.
  friend bool operator==(const ClusterSettings&, const ClusterSettings&) = default;
};

// The folder of a local cluster:
//   cluster.json  settings        cluster.key  the secret, mode 0600      lock      held while `up` or `down`
//   change something router/       router's state  node-N/data  the node's data_dir        logs/, run/ output
//   and process ids
// Owner: a command; one thread. Holds the lock until destroyed or Unlock.
class ClusterFolder {
 public:
  // Makes the folder (mode 0700) when it is not there.
  static absl::StatusOr<ClusterFolder> Create(const std::string& dir);
  // NotFound naming the folder and the next step when no cluster was made there.
  static absl::StatusOr<ClusterFolder> Open(const std::string& dir);
  static bool Exists(const std::string& dir);

  ClusterFolder(ClusterFolder&& other) noexcept;
  ClusterFolder& operator=(ClusterFolder&&) = delete;
  ~ClusterFolder() { Unlock(); }
  void Unlock();

  // Nothing in a new folder. DataLoss naming the file when it cannot be read.
  absl::StatusOr<std::optional<ClusterSettings>> Load() const;
  absl::Status Save(const ClusterSettings& settings) const;
  void ForgetSettings() const;
  // The file with the cluster's secret; made here when it is not there. FailedPrecondition when it is not,
  // and a router or node has folders already: what they hold was stored under it.
  absl::StatusOr<std::string> KeyFile() const;

  // name: "router", "node-1", ...
  std::optional<ProcessId> Recorded(const std::string& name) const;
  absl::Status Record(const std::string& name, const ProcessId& process) const;
  void Forget(const std::string& name) const;
  std::vector<std::string> RecordedNames() const;

  const std::string& dir() const { return dir_; }
  std::string Log(const std::string& name) const { return dir_ + "/logs/" + name + ".log"; }
  std::string RouterState() const { return dir_ + "/router"; }
  bool HasRouterState() const;
  // The cluster that the first node with an id of one belongs to, as hex digits; empty: none has any.
  std::string ClusterOfNodes() const;
  std::string NodeData(const std::string& node) const { return dir_ + "/" + node + "/data"; }

 private:
  ClusterFolder(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}
  std::string KeptUnderKey() const;  // Folders by name; empty when there are none.
  static absl::StatusOr<ClusterFolder> Lock(const std::string& dir);
  std::string dir_;  // Absolute.
  int lock_ = -1;
};

}  // namespace cistern
