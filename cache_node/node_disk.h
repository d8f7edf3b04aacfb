#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cache_node/disk/disk_tier.h"
#include "cache_node/node_options.h"
#include "core/clock.h"

namespace cistern {

// What the disk tier takes of this machine's memory beside --ram.
uint64_t DiskMemoryBytes(const NodeOptions& options);

// The disk tier of one shard: extents in nvme/, the manifest in manifest/ (docs/disk_format.md), of the data
// folder for the first shard, of its folder shard-N for the others.
// Says in the log how it reads and writes, and what it found. Errors: one line that names the folder and the
// cause.
absl::StatusOr<std::unique_ptr<DiskTier>> OpenNodeDisk(const NodeOptions& options, uint32_t shard,
                                                       Clock& clock, uint64_t seed);

// Makes the folders of further shards, before any log is. A folder whose logs were written by another number
// of shards would not find its parts: FailedPrecondition with both numbers.
absl::Status PrepareShardFolders(const NodeOptions& options);

// Arms the crash point of --crash-at, "POINT" or "POINT:PASS". InvalidArgument for anything else.
absl::Status ArmCrashFlag(const std::string& text);

}  // namespace cistern
