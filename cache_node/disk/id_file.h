#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ids.h"

namespace cistern {

// The files node_id and cluster_id of a node's data folder: whose it is. Each holds its line several times
// with a checksum, so that one damaged spot costs nobody the folder (F37). Nothing: there is no such file, as
// on a folder's first start. InvalidArgument with cause and next step when nothing whole is left in it.
absl::StatusOr<std::optional<std::string>> ReadNodeId(const std::string& dir);
absl::StatusOr<std::optional<ClusterId>> ReadClusterId(const std::string& dir);

// Whole or not at all, also across a crash.
absl::Status WriteNodeId(const std::string& dir, const std::string& id);
absl::Status WriteClusterId(const std::string& dir, const ClusterId& cluster);

}  // namespace cistern
