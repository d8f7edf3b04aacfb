#include "transport/topology.h"

namespace cistern {

absl::StatusOr<Topology> ReadTopology(const std::string&) {
  return absl::UnimplementedError(
      "this build has no hwloc; install libhwloc-dev (deploy/install_deps.sh) and configure again");
}

}  // namespace cistern
