#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cistern {

// One write: a value, or nothing to delete the key.
struct StateChange {
  std::string key;
  std::optional<std::string> value;
};

inline constexpr size_t kStateChangesMax = 4096;  // In one Commit.

// Where the router keeps what must survive it. Small, ordered, written rarely. Owner: the router's process;
// one thread.
class StateStore {
 public:
  virtual ~StateStore() = default;
  // Everything there is. DataLoss when it cannot be read whole.
  virtual absl::StatusOr<std::map<std::string, std::string>> LoadAll() = 0;
  // All or nothing, on disk when it returns OK.
  virtual absl::Status Commit(const std::vector<StateChange>& changes) = 0;
};

// For tests and the simulator: what was committed outlives a Router, as a disk would.
class MemoryStateStore final : public StateStore {
 public:
  absl::StatusOr<std::map<std::string, std::string>> LoadAll() override;
  absl::Status Commit(const std::vector<StateChange>& changes) override;
  // The next commits fail with this until it is OK again.
  void FailWith(absl::Status status) { failure_ = std::move(status); }

 private:
  std::map<std::string, std::string> values_;
  absl::Status failure_;
};

// Embedded RocksDB in `dir` (made when missing). FailedPrecondition when another process has it open;
// DataLoss, with what to do, when it is damaged.
absl::StatusOr<std::unique_ptr<StateStore>> OpenRocksdbStateStore(const std::string& dir);

}  // namespace cistern
