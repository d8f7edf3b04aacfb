#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_run.h"

namespace cistern {

struct FioPattern {
  std::string folder;  // Its file lies here, and goes with the limit.
  // Read in place of a file of its own: what lies elsewhere on the disk may be twice as fast.
  std::vector<std::string> files;
  bool write = false;  // Sequential writes; else random reads.
  uint64_t size = 0;   // Bytes of one request.
  uint32_t depth = 1;  // Requests under way.
};

// The limit of a disk: fio with the same pattern, io_uring and O_DIRECT, one run a slice. NotFound with the
// next step when there is no fio; Unavailable with what fio says when it fails.
absl::StatusOr<BenchLimit> FioLimit(const FioPattern& pattern);

}  // namespace cistern
