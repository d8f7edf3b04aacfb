#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"

namespace cistern {

// Drives a disk log in a folder of its own, without a node, as fast as it goes: what `cistern bench disk`
// measures. Records, checksums, syncs and reclaim are the node's. One thread; removes the folder's log when
// destroyed.
class LogProbe {
 public:
  // A log of capacity_bytes in `folder`, which must be empty or absent, for parts of one size.
  static absl::StatusOr<std::unique_ptr<LogProbe>> Open(const std::string& folder, uint32_t part_bytes,
                                                        uint64_t capacity_bytes);
  virtual ~LogProbe() = default;

  // Appends one part; waits for room.
  virtual absl::Status Write() = 0;
  // Waits until all of it is durable.
  virtual absl::Status Settle() = 0;
  // Waits for the end of one read of a random part into `target`, checksum compared on the way, and keeps
  // `depth()` of them under way.
  virtual absl::Status Read(Segment target) = 0;
  virtual uint32_t depth() const = 0;
  // Waits for the reads that are under way and forgets them: what comes next is not counted ahead.
  virtual void EndReads() = 0;
  // Paths of files that are full of parts.
  virtual std::vector<std::string> FullFiles() const = 0;
  // How the disk is written and read: "io_uring, O_DIRECT, ...".
  virtual std::string Describe() const = 0;
};

}  // namespace cistern
