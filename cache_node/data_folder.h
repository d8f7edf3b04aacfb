#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ids.h"

namespace cistern {

// A node's folder: its lock, its id and the id of the cluster it belongs to. One process holds it at a time;
// the kernel lets go of the lock when that process ends, however it ends, so no start needs hand work (F34).
// Owner: main. Thread: any one at a time.
class DataFolder {
 public:
  // Makes the folder when missing and takes its lock; waits for an owner that was killed and is not quite
  // gone. FailedPrecondition naming the owner's pid when another process has it; InvalidArgument with the
  // cause when it cannot be made, entered or read, or an id file in it is damaged.
  static absl::StatusOr<DataFolder> Open(const std::string& path);
  DataFolder(DataFolder&& other) noexcept;
  DataFolder& operator=(DataFolder&&) = delete;
  ~DataFolder();

  const std::string& path() const { return path_; }
  // Names the lock: this boot of this host, and the file. Whoever holds it knows that no other process of the
  // same place is alive; a copy of the folder is another place. Empty when the system does not say.
  std::string place() const;
  // Empty on the folder's first start.
  const std::string& node_id() const { return node_id_; }
  const std::optional<ClusterId>& cluster() const { return cluster_; }

  // Once set they stay: FailedPrecondition when the folder belongs to another node or cluster.
  absl::Status SetNodeId(const std::string& id);
  absl::Status SetCluster(const ClusterId& cluster);

 private:
  DataFolder(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  absl::Status ReadIds();

  std::string path_;
  int lock_fd_ = -1;
  std::string node_id_;
  std::optional<ClusterId> cluster_;
};

}  // namespace cistern
