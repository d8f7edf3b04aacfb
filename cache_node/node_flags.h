#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cache_node/node_options.h"

namespace cistern {

// What CLI11 cannot check by itself. InvalidArgument names the flag.
absl::Status ValidateNodeOptions(const NodeOptions& options);
// InvalidArgument: a flag that was given does nothing without another one.
absl::Status CheckLoneFlags(const NodeOptions& options, const std::function<bool(const char* flag)>& given);

// Where the cluster's key is looked for without --cluster-key: `cluster.key` in data_dir or up to two folders
// above it, where `cistern up` puts it. Empty when there is none.
// "HOST:PORT" that the router tells clients of: `bound` with `advertise` as its host, where there is one.
std::string AdvertisedAddress(const std::string& bound, const std::string& advertise);
std::string FindClusterKey(const std::string& data_dir);

}  // namespace cistern
