#pragma once

#include <string>
#include <vector>

#include "core/cluster_map.h"

namespace cistern {

// What became of whom from one map to the next, a line each, for the log: nodes that joined, were taken over
// by another process, are gone, came back, changed their state, or were forgotten.
std::vector<std::string> MapChanges(const ClusterMap& before, const ClusterMap& after);

}  // namespace cistern
