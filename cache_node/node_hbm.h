#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cache_node/hbm_tier.h"
#include "cache_node/node_options.h"
#include "cache_node/node_shard.h"

namespace cistern {

// One shard's share of the device memory, and says by which path parts get there (F41). NotFound: the device
// asked for is not here; nothing is taken in its place.
absl::StatusOr<std::unique_ptr<HbmTier>> OpenNodeHbm(const NodeOptions& options, Clock& clock,
                                                     Random& random);

// After the arena has been touched: copies to and from the device go at its full speed. Says in the log where
// that cannot be.
void PinForDevice(NodeShard& shard);

}  // namespace cistern
