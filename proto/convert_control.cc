#include "proto/convert_control.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "proto/convert.h"

namespace cistern {
namespace {

constexpr size_t kProofBytes = 32;
constexpr size_t kTextBytesMax = 256;

absl::Status Bad(std::string_view message) { return absl::InvalidArgumentError(std::string(message)); }

absl::StatusOr<ClusterId> ClusterFromWire(const std::string& bytes) {
  ClusterId id;
  if (bytes.size() != id.bytes.size()) return Bad("cluster id is not 16 bytes");
  std::memcpy(id.bytes.data(), bytes.data(), bytes.size());
  return id;
}

template <typename Message>
void SetCluster(const ClusterId& id, Message& to) {
  to.set_cluster(id.bytes.data(), id.bytes.size());
}

}  // namespace

absl::StatusOr<RegisterRequest> FromWire(const proto::RegisterNodeRequest& wire) {
  RegisterRequest request;
  request.node_id = wire.node_id();
  if (!wire.cluster().empty()) {
    CISTERN_ASSIGN_OR_RETURN(request.cluster, ClusterFromWire(wire.cluster()));
  }
  request.boot_nonce = wire.boot_nonce();
  if (wire.proof().size() != kProofBytes) return Bad("proof is not 32 bytes");
  request.proof = wire.proof();
  request.weight = wire.weight();
  if (static_cast<size_t>(wire.shards_size()) > kShardsPerNodeMax)
    return Bad("shards: more than kShardsPerNodeMax");
  for (const proto::ShardAddress& shard : wire.shards()) {
    CISTERN_ASSIGN_OR_RETURN(ShardAddress address, FromWire(shard));
    request.shards.push_back(std::move(address));
  }
  request.ram_bytes = wire.ram_bytes();
  request.held_incarnation = wire.held_incarnation();
  request.place = wire.place();
  CISTERN_RETURN_IF_ERROR(ValidateRegister(request));
  return request;
}

proto::RegisterNodeRequest ToWire(const RegisterRequest& request) {
  proto::RegisterNodeRequest wire;
  wire.set_node_id(request.node_id);
  if (request.cluster) SetCluster(*request.cluster, wire);
  wire.set_boot_nonce(request.boot_nonce);
  wire.set_proof(request.proof);
  wire.set_weight(request.weight);
  for (const ShardAddress& shard : request.shards) *wire.add_shards() = ToWire(shard);
  wire.set_ram_bytes(request.ram_bytes);
  wire.set_held_incarnation(request.held_incarnation);
  wire.set_place(request.place);
  return wire;
}

absl::StatusOr<Registration> FromWire(const proto::RegisterNodeReply& wire) {
  Registration registration;
  CISTERN_ASSIGN_OR_RETURN(registration.cluster, ClusterFromWire(wire.cluster()));
  if (wire.incarnation() == 0) return Bad("registration: incarnation is 0");
  registration.incarnation = wire.incarnation();
  if (wire.heartbeat_ms() < kHeartbeatMsMin || wire.heartbeat_ms() > kHeartbeatMsMax) {
    return Bad("registration: heartbeat_ms out of range");
  }
  registration.heartbeat_ms = wire.heartbeat_ms();
  return registration;
}

absl::StatusOr<HeartbeatRequest> FromWire(const proto::HeartbeatRequest& wire, bool& stats_refused) {
  HeartbeatRequest request;
  if (!IsNodeId(wire.node_id())) return Bad("heartbeat: node_id is malformed");
  request.node_id = wire.node_id();
  if (wire.incarnation() == 0) return Bad("heartbeat: incarnation is 0");
  request.incarnation = wire.incarnation();
  request.known_epoch = wire.known_epoch();
  if (static_cast<size_t>(wire.shard_last_poll_ms_ago_size()) > kShardsPerNodeMax)
    return Bad("heartbeat: too many shards");
  request.shard_last_poll_ms_ago.assign(wire.shard_last_poll_ms_ago().begin(),
                                        wire.shard_last_poll_ms_ago().end());
  if (wire.proof().size() != kProofBytes) return Bad("heartbeat: proof is not 32 bytes");
  request.proof = wire.proof();
  absl::StatusOr<NodeStats> stats = FromWire(wire.stats());
  stats_refused = !stats.ok();
  if (stats.ok()) request.stats = *std::move(stats);
  return request;
}

proto::HeartbeatRequest ToWire(const HeartbeatRequest& request) {
  proto::HeartbeatRequest wire;
  wire.set_node_id(request.node_id);
  wire.set_incarnation(request.incarnation);
  wire.set_known_epoch(request.known_epoch);
  for (const uint64_t age : request.shard_last_poll_ms_ago) wire.add_shard_last_poll_ms_ago(age);
  wire.set_proof(request.proof);
  *wire.mutable_stats() = ToWire(request.stats);
  return wire;
}

absl::StatusOr<TicketGrant> FromWire(const proto::GetTicketReply& wire) {
  TicketGrant grant;
  CISTERN_ASSIGN_OR_RETURN(grant.cluster, ClusterFromWire(wire.cluster()));
  if (wire.ticket().empty() || wire.ticket().size() > kTicketBytesMax)
    return Bad("ticket: length out of range");
  grant.sealed = wire.ticket();
  if (wire.namespace_secret().size() != grant.namespace_secret.size())
    return Bad("ticket: namespace secret is not 32 bytes");
  std::memcpy(grant.namespace_secret.data(), wire.namespace_secret().data(), grant.namespace_secret.size());
  if (wire.expires_unix_s() <= 0) return Bad("ticket: no expiry");
  grant.expires_unix_s = wire.expires_unix_s();
  return grant;
}

proto::GetTicketReply ToWire(const TicketGrant& grant) {
  proto::GetTicketReply wire;
  SetCluster(grant.cluster, wire);
  wire.set_ticket(grant.sealed);
  wire.set_namespace_secret(grant.namespace_secret.data(), grant.namespace_secret.size());
  wire.set_expires_unix_s(grant.expires_unix_s);
  return wire;
}

absl::StatusOr<GoneReport> FromWire(const proto::ReportPeersGoneRequest& wire) {
  GoneReport report;
  if (wire.ticket().empty() || wire.ticket().size() > kTicketBytesMax)
    return Bad("peers gone: ticket: length out of range");
  report.ticket = wire.ticket();
  if (static_cast<size_t>(wire.peers_size()) > kGonePeersMax)
    return Bad("peers gone: more than kGonePeersMax peers");
  for (const auto& peer : wire.peers()) {
    if (!IsNodeId(peer.node_id())) return Bad("peers gone: node_id is malformed");
    if (peer.incarnation() == 0) return Bad("peers gone: incarnation is 0");
    report.peers.push_back({peer.node_id(), peer.incarnation()});
  }
  return report;
}

proto::ReportPeersGoneRequest ToWire(const GoneReport& report) {
  proto::ReportPeersGoneRequest wire;
  wire.set_ticket(report.ticket);
  for (const GonePeer& peer : report.peers) {
    auto* to = wire.add_peers();
    to->set_node_id(peer.node_id);
    to->set_incarnation(peer.incarnation);
  }
  return wire;
}

absl::StatusOr<DrainRequest> FromWire(const proto::DrainNodeRequest& wire) {
  if (wire.ticket().empty() || wire.ticket().size() > kTicketBytesMax)
    return Bad("drain: ticket: length out of range");
  if (!IsNodeId(wire.node_id())) return Bad("drain: node_id is malformed");
  return DrainRequest{wire.ticket(), wire.node_id(), wire.undo()};
}

proto::DrainNodeRequest ToWire(const DrainRequest& request) {
  proto::DrainNodeRequest wire;
  wire.set_ticket(request.ticket);
  wire.set_node_id(request.node_id);
  wire.set_undo(request.undo);
  return wire;
}

absl::StatusOr<DrainResult> FromWire(const proto::DrainNodeReply& wire) {
  const int state = wire.state();
  if (state < 0 || state > static_cast<int>(NodeState::kGone)) return Bad("drain: state is not known");
  return DrainResult{static_cast<NodeState>(state), wire.epoch()};
}

absl::StatusOr<ClusterStatus> FromWire(const proto::GetStatusReply& wire) {
  ClusterStatus status;
  if (wire.router_id().size() > kTextBytesMax || wire.address().size() > kTextBytesMax)
    return Bad("status: text too long");
  status.router_id = wire.router_id();
  status.address = wire.address();
  status.pid = wire.pid();
  status.uptime_ms = wire.uptime_ms();
  CISTERN_ASSIGN_OR_RETURN(status.map, FromWire(wire.map()));
  // Records stand in the map's order, one a node.
  if (static_cast<size_t>(wire.nodes_size()) != status.map.nodes.size())
    return Bad("status: records and map disagree");
  for (int i = 0; i < wire.nodes_size(); ++i) {
    const proto::NodeRecord& node = wire.nodes(i);
    if (node.entry().id() != status.map.nodes[i].id) return Bad("status: records and map disagree");
    if (static_cast<size_t>(node.shard_last_poll_ms_ago_size()) > kShardsPerNodeMax)
      return Bad("status: too many shards");
    NodeRecord& record = status.nodes.emplace_back();
    record.entry = status.map.nodes[i];
    CISTERN_ASSIGN_OR_RETURN(record.stats, FromWire(node.stats()));
    record.last_heartbeat_ms_ago = node.last_heartbeat_ms_ago();
    record.shard_last_poll_ms_ago.assign(node.shard_last_poll_ms_ago().begin(),
                                         node.shard_last_poll_ms_ago().end());
  }
  if (wire.counters_size() > static_cast<int>(kCountersMax)) return Bad("status: too many counters");
  status.counters.insert(wire.counters().begin(), wire.counters().end());
  return status;
}

namespace {

// Leaves out what whoever asks a node by itself gets too, the least used first, until the answer fits into
// one message.
void FitIntoMessage(proto::GetStatusReply& wire) {
  using Stats = proto::NodeStats;
  const std::pair<const char*, void (Stats::*)()> details[] = {
      {"status_left_out_runs", &Stats::clear_runs},
      {"status_left_out_peers", &Stats::clear_peers},
      {"status_left_out_counters", &Stats::clear_counters}};
  for (const auto& [name, clear] : details) {
    if (wire.ByteSizeLong() <= kControlMessageBytesMax) return;
    for (proto::NodeRecord& node : *wire.mutable_nodes()) (node.mutable_stats()->*clear)();
    (*wire.mutable_counters())[name] = static_cast<uint64_t>(wire.nodes_size());  // Of so many nodes.
  }
}

}  // namespace

proto::GetStatusReply ToWire(const ClusterStatus& status) {
  proto::GetStatusReply wire;
  wire.set_router_id(status.router_id);
  wire.set_address(status.address);
  wire.set_pid(status.pid);
  wire.set_uptime_ms(status.uptime_ms);
  *wire.mutable_map() = ToWire(status.map);
  for (size_t i = 0; i < status.nodes.size(); ++i) {
    proto::NodeRecord& node = *wire.add_nodes();
    // The entry is the map's: only its id goes twice.
    node.mutable_entry()->set_id(status.nodes[i].entry.id);
    *node.mutable_stats() = ToWire(status.nodes[i].stats);
    node.set_last_heartbeat_ms_ago(status.nodes[i].last_heartbeat_ms_ago);
    for (const uint64_t age : status.nodes[i].shard_last_poll_ms_ago) node.add_shard_last_poll_ms_ago(age);
  }
  for (const auto& [name, value] : status.counters) (*wire.mutable_counters())[name] = value;
  FitIntoMessage(wire);
  return wire;
}

}  // namespace cistern
