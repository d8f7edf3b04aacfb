#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cache_node/node_options.h"
#include "cache_node/shard_loop.h"
#include "core/cluster_map.h"
#include "transport/fabric.h"

namespace cistern {

// Opens the fabric that --fabric names; null without one. Says once what it found, and warns when there is no
// RDMA (F28).
absl::StatusOr<std::shared_ptr<FabricDomain>> OpenNodeFabric(const NodeOptions& options);

// One shard on all paths that the options offer: listening, but not yet answering; nobody is told `address`
// before the node is registered.
absl::StatusOr<std::unique_ptr<ShardLoop>> MakeShard(const NodeOptions& options,
                                                     const NodeShardOptions& shard_options,
                                                     const std::shared_ptr<FabricDomain>& fabric,
                                                     ShardAddress& address);

}  // namespace cistern
