#pragma once

#include <csignal>
#include <string>

namespace cistern {

// What cistern-node and cistern-router do alike before their first thread starts.

// Blocks SIGTERM and SIGINT in this thread and all that it will start, so that only sigwait on the returned
// set sees them; ignores SIGPIPE.
sigset_t BlockStopSignals();

// Log lines go to standard error under `name`; gRPC's and protobuf's own words become debug lines among them.
// `level`: trace, debug, info, warn or error.
void StartLog(const std::string& name, const std::string& level);

}  // namespace cistern
