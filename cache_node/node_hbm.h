#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_options.h"

namespace cistern {

// One shard's share of the device memory, and says by which path parts get there (F41). NotFound: the device
// asked for is not here; nothing is taken in its place.
absl::StatusOr<std::unique_ptr<HbmTier>> OpenNodeHbm(const NodeOptions& options, Clock& clock,
                                                     Random& random);

}  // namespace cistern
