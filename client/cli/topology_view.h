#pragma once

#include <string>

#include "client/cli/options.h"
#include "client/cli/output.h"

namespace cistern {

// What `cistern peers --topology` shows of this machine: NICs, GPUs and which NICs their bytes take, and what
// the fabric library offers here.
Json TopologyJson(const FabricFlags& flags);
std::string TopologyText(const Json& topology);

}  // namespace cistern
