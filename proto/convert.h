#pragma once

#include "absl/status/statusor.h"
#include "core/cluster_map.h"
#include "core/node_stats.h"
#include "proto/cluster.pb.h"

// Between wire messages and plain values. Everything from the wire is validated here: counts, lengths,
// ranges, order.
namespace cistern {

absl::StatusOr<ClusterMap> FromWire(const proto::ClusterMap& wire);
proto::ClusterMap ToWire(const ClusterMap& map);
absl::StatusOr<NodeStats> FromWire(const proto::NodeStats& wire);
proto::NodeStats ToWire(const NodeStats& stats);
absl::StatusOr<ShardAddress> FromWire(const proto::ShardAddress& wire);
proto::ShardAddress ToWire(const ShardAddress& address);

}  // namespace cistern
