#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cistern/client.h"
#include "client/cli/options.h"
#include "core/cluster_map.h"
#include "core/node_stats.h"

namespace cistern {

// A client to the cluster that the options name; the error is one line that names cause and next step.
// `adjust` may change what the flags do not say (window, spinning).
Result<std::unique_ptr<Client>> ConnectClient(const CliOptions& options,
                                              const std::function<void(ClientOptions&)>& adjust = {});

// "unreachable" text of a status: its message, or its code's name when it has none.
std::string Words(const absl::Status& status);

}  // namespace cistern
