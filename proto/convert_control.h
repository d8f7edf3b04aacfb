#pragma once

#include "absl/status/statusor.h"
#include "core/gone_peer.h"
#include "proto/cluster.pb.h"
#include "proto/control.h"

// The requests and replies of the Cluster service to and from plain values; everything from the wire is
// validated here.
namespace cistern {

absl::StatusOr<RegisterRequest> FromWire(const proto::RegisterNodeRequest& wire);
proto::RegisterNodeRequest ToWire(const RegisterRequest& request);
absl::StatusOr<Registration> FromWire(const proto::RegisterNodeReply& wire);  // Without its map.
// A heartbeat whose figures break a limit still proves that the node lives: they are left out and
// `stats_refused` is set.
absl::StatusOr<HeartbeatRequest> FromWire(const proto::HeartbeatRequest& wire, bool& stats_refused);
proto::HeartbeatRequest ToWire(const HeartbeatRequest& request);
absl::StatusOr<TicketGrant> FromWire(const proto::GetTicketReply& wire);
proto::GetTicketReply ToWire(const TicketGrant& grant);
absl::StatusOr<DrainRequest> FromWire(const proto::DrainNodeRequest& wire);
proto::DrainNodeRequest ToWire(const DrainRequest& request);
absl::StatusOr<DrainResult> FromWire(const proto::DrainNodeReply& wire);
absl::StatusOr<GoneReport> FromWire(const proto::ReportPeersGoneRequest& wire);
proto::ReportPeersGoneRequest ToWire(const GoneReport& report);
absl::StatusOr<ClusterStatus> FromWire(const proto::GetStatusReply& wire);
proto::GetStatusReply ToWire(const ClusterStatus& status);

}  // namespace cistern
