#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern {

inline constexpr size_t kFsckProblemsMax = 10'000;  // Named; the rest is only counted.

// One thing wrong in a node's data folder. kind: "extent_header", "footer", "record", "payload", "torn_tail",
// "overlap", "unreadable", "short_extent", "stray_file", "manifest", "manifest_extent",
// "node_id", "cluster_id".
struct FsckProblem {
  std::string kind;
  std::string where;  // "nvme/extent-0000002a at 4096: checksum"
};

struct FsckReport {
  std::string dir;
  uint64_t parts = 0;         // Whole ones, the newest of each key.
  uint64_t tails = 0;         // Whole ones.
  uint64_t part_tails = 0;    // Lack a part: no problem, their writer may have ended, or reclaim took some.
  uint64_t extents = 0;       // With records.
  bool online = false;        // A node has the folder: sealed extents alone were looked at, and no manifest.
  uint64_t open_extents = 0;  // Left out for that.
  uint64_t problem_count = 0;
  std::vector<FsckProblem> problems;
  bool clean() const { return problem_count == 0; }
};

// Reads all of a node's disk log and compares it with itself and with the manifest: overlaps, leaks,
// checksums. Changes nothing. A folder without a log is clean. Where a node has the folder, what it has
// sealed is checked meanwhile. NotFound: no such folder, or one of nothing that a node leaves behind.
absl::StatusOr<FsckReport> CheckDataFolder(const std::string& dir);

}  // namespace cistern
