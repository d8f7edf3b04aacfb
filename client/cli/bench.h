#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/bench_run.h"
#include "client/cli/options.h"

namespace cistern {

inline constexpr uint32_t kTransferBatchDefault = 16;
inline constexpr uint32_t kChainBatchDefault = 4096;  // Blocks of the prefix for lookup and hash.

struct BenchReport {
  BenchFigures figures;
  std::string limit_name;  // Empty: no limit was measured.
  std::string path;        // "map", "socket", "mixed"; how the disk is used; empty for hash.
};

// Each runs one op of `cistern bench`; options.bench.batch is filled in. Errors are one line.
absl::StatusOr<BenchReport> BenchRead(const CliOptions& options);
absl::StatusOr<BenchReport> BenchWrite(const CliOptions& options);
absl::StatusOr<BenchReport> BenchLookup(const CliOptions& options);
absl::StatusOr<BenchReport> BenchHash(const CliOptions& options);
absl::StatusOr<BenchReport> BenchDisk(const CliOptions& options);

// Prints its own kind of result: a row for each form of storage compression. Returns the exit code.
int BenchFormats(const CliOptions& options);

}  // namespace cistern
