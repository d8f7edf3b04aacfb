#include "proto/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "proto/control.h"

namespace cistern {
namespace {

constexpr int kTiersMax = 8;
constexpr size_t kTierNameBytesMax = 16;
constexpr size_t kPeerTextBytesMax = 256;
constexpr uint32_t kRunBlocksCapMax = 4096;

absl::Status Bad(std::string_view message) { return absl::InvalidArgumentError(std::string(message)); }

bool IsText(std::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < ' ' || c == 127;
         });
}

bool IsWeight(double weight) { return std::isfinite(weight) && weight > 0 && weight <= kWeightMax; }

absl::StatusOr<NodeEntry> FromWire(const proto::NodeEntry& wire) {
  NodeEntry entry;
  if (!IsNodeId(wire.id())) return Bad("map: node id is malformed");
  entry.id = wire.id();
  if (wire.incarnation() == 0) return Bad(absl::StrCat("map: node ", entry.id, " has incarnation 0"));
  entry.incarnation = wire.incarnation();
  if (!proto::NodeState_IsValid(wire.state()))
    return Bad(absl::StrCat("map: node ", entry.id, " has an unknown state"));
  entry.state = static_cast<NodeState>(wire.state());
  if (!IsWeight(wire.weight()))
    return Bad(absl::StrCat("map: node ", entry.id, " has a weight out of range"));
  entry.weight = wire.weight();
  if (wire.shards_size() < 1 || static_cast<size_t>(wire.shards_size()) > kShardsPerNodeMax) {
    return Bad(absl::StrCat("map: node ", entry.id, " has ", wire.shards_size(), " shards"));
  }
  entry.shards.reserve(wire.shards_size());
  for (const proto::ShardAddress& shard : wire.shards()) {
    CISTERN_ASSIGN_OR_RETURN(ShardAddress address, cistern::FromWire(shard));
    entry.shards.push_back(std::move(address));
  }
  return entry;
}

absl::StatusOr<OwnerSet> FromWire(const proto::OwnerSet& wire) {
  OwnerSet set;
  if (wire.epoch() == 0) return Bad("map: open move of epoch 0");
  set.epoch = wire.epoch();
  if (wire.owners_size() < 1 || static_cast<size_t>(wire.owners_size()) > kNodesMax) {
    return Bad(absl::StrCat("map: open move with ", wire.owners_size(), " owners"));
  }
  set.owners.reserve(wire.owners_size());
  for (const proto::OwnerSet::Owner& owner : wire.owners()) {
    if (!IsNodeId(owner.id())) return Bad("map: owner id is malformed");
    if (!IsWeight(owner.weight())) return Bad("map: owner weight out of range");
    if (!set.owners.empty() && owner.id() <= set.owners.back().id) return Bad("map: owners are not in order");
    set.owners.push_back({owner.id(), owner.weight()});
  }
  return set;
}

}  // namespace

absl::StatusOr<ShardAddress> FromWire(const proto::ShardAddress& wire) {
  ShardAddress address{wire.tcp(), wire.unix_name(), wire.fabric()};
  CISTERN_RETURN_IF_ERROR(ValidateShardAddress(address));
  return address;
}

proto::ShardAddress ToWire(const ShardAddress& address) {
  proto::ShardAddress wire;
  wire.set_tcp(address.tcp);
  wire.set_unix_name(address.unix_name);
  wire.set_fabric(address.fabric);
  return wire;
}

absl::StatusOr<ClusterMap> FromWire(const proto::ClusterMap& wire) {
  ClusterMap map;
  if (wire.cluster().size() != map.cluster.bytes.size()) return Bad("map: cluster id is not 16 bytes");
  std::memcpy(map.cluster.bytes.data(), wire.cluster().data(), map.cluster.bytes.size());
  if (wire.epoch() == 0) return Bad("map: epoch is 0");
  map.epoch = wire.epoch();
  map.weights_epoch = wire.weights_epoch();
  if (!std::has_single_bit(wire.run_blocks_cap()) || wire.run_blocks_cap() > kRunBlocksCapMax) {
    return Bad("map: run_blocks_cap is not a power of two up to 4096");
  }
  map.run_blocks_cap = wire.run_blocks_cap();
  if (static_cast<size_t>(wire.nodes_size()) > kNodesMax) return Bad("map: more than kNodesMax nodes");
  map.nodes.reserve(wire.nodes_size());
  for (const proto::NodeEntry& node : wire.nodes()) {
    CISTERN_ASSIGN_OR_RETURN(NodeEntry entry, FromWire(node));
    if (!map.nodes.empty() && entry.id <= map.nodes.back().id)
      return Bad("map: nodes are not in order of their ids");
    map.nodes.push_back(std::move(entry));
  }
  if (static_cast<size_t>(wire.open_moves_size()) > kOpenMovesMax)
    return Bad("map: more than kOpenMovesMax open moves");
  for (const proto::OwnerSet& move : wire.open_moves()) {
    CISTERN_ASSIGN_OR_RETURN(OwnerSet set, FromWire(move));
    const uint64_t newer = map.open_moves.empty() ? map.epoch : map.open_moves.back().epoch;
    if (set.epoch >= newer) return Bad("map: open moves are not newest first below the epoch");
    map.open_moves.push_back(std::move(set));
  }
  return map;
}

proto::ClusterMap ToWire(const ClusterMap& map) {
  proto::ClusterMap wire;
  wire.set_cluster(map.cluster.bytes.data(), map.cluster.bytes.size());
  wire.set_epoch(map.epoch);
  wire.set_weights_epoch(map.weights_epoch);
  wire.set_run_blocks_cap(map.run_blocks_cap);
  for (const NodeEntry& node : map.nodes) {
    proto::NodeEntry& entry = *wire.add_nodes();
    entry.set_id(node.id);
    entry.set_incarnation(node.incarnation);
    entry.set_state(static_cast<proto::NodeState>(node.state));
    entry.set_weight(node.weight);
    for (const ShardAddress& shard : node.shards) *entry.add_shards() = ToWire(shard);
  }
  for (const OwnerSet& move : map.open_moves) {
    proto::OwnerSet& set = *wire.add_open_moves();
    set.set_epoch(move.epoch);
    for (const OwnerSet::Owner& owner : move.owners) {
      proto::OwnerSet::Owner& to = *set.add_owners();
      to.set_id(owner.id);
      to.set_weight(owner.weight);
    }
  }
  return wire;
}

absl::StatusOr<NodeStats> FromWire(const proto::NodeStats& wire) {
  NodeStats stats;
  if (wire.tiers_size() > kTiersMax) return Bad("stats: too many tiers");
  for (const proto::TierStats& tier : wire.tiers()) {
    if (tier.tier().empty() || !IsText(tier.tier(), kTierNameBytesMax))
      return Bad("stats: tier name is malformed");
    if (!IsText(tier.device(), kPeerTextBytesMax)) return Bad("stats: device of a tier is malformed");
    stats.tiers.push_back(
        {tier.tier(), tier.used_bytes(), tier.capacity_bytes(), tier.parts(), tier.device()});
  }
  stats.hit_blocks = wire.hit_blocks();
  stats.miss_blocks = wire.miss_blocks();
  if (!std::isfinite(wire.cpu_seconds()) || wire.cpu_seconds() < 0)
    return Bad("stats: cpu_seconds is no duration");
  stats.cpu_seconds = wire.cpu_seconds();
  if (wire.counters_size() > static_cast<int>(kCountersMax)) return Bad("stats: too many counters");
  for (const auto& [name, value] : wire.counters()) {
    if (name.empty() || !IsText(name, kCounterNameBytesMax)) return Bad("stats: counter name is malformed");
    stats.counters.emplace(name, value);
  }
  if (static_cast<size_t>(wire.peers_size()) > kPeerStatsMax) return Bad("stats: too many peers");
  for (const proto::PeerStats& peer : wire.peers()) {
    for (const std::string* text :
         {&peer.peer(), &peer.transport(), &peer.device(), &peer.memory(), &peer.why()}) {
      if (!IsText(*text, kPeerTextBytesMax)) return Bad("stats: text of a peer is malformed");
    }
    stats.peers.push_back({peer.peer(), peer.transport(), peer.device(), peer.memory(), peer.why()});
  }
  if (static_cast<size_t>(wire.runs_size()) > kRunStatsMax) return Bad("stats: too many runs");
  for (const proto::RunStats& run : wire.runs()) {
    if (!IsText(run.run(), kPeerTextBytesMax) || !IsText(run.temperature(), kPeerTextBytesMax))
      return Bad("stats: text of a run is malformed");
    stats.runs.push_back({run.run(), run.blocks(), run.uses(), run.idle_ms(), run.temperature()});
  }
  return stats;
}

// The bounds hold on this side too: a figure above them would make the receiver refuse all the others.
proto::NodeStats ToWire(const NodeStats& stats) {
  proto::NodeStats wire;
  for (size_t i = 0; i < std::min<size_t>(stats.tiers.size(), kTiersMax); ++i) {
    proto::TierStats& to = *wire.add_tiers();
    to.set_tier(stats.tiers[i].tier);
    to.set_used_bytes(stats.tiers[i].used_bytes);
    to.set_capacity_bytes(stats.tiers[i].capacity_bytes);
    to.set_parts(stats.tiers[i].parts);
    to.set_device(stats.tiers[i].device);
  }
  wire.set_hit_blocks(stats.hit_blocks);
  wire.set_miss_blocks(stats.miss_blocks);
  wire.set_cpu_seconds(stats.cpu_seconds);
  size_t counters = 0;
  for (const auto& [name, value] : stats.counters) {
    if (++counters > kCountersMax) break;
    (*wire.mutable_counters())[name] = value;
  }
  for (size_t i = 0; i < std::min(stats.peers.size(), kPeerStatsMax); ++i) {
    const PeerStats& peer = stats.peers[i];
    proto::PeerStats& to = *wire.add_peers();
    to.set_peer(peer.peer);
    to.set_transport(peer.transport);
    to.set_device(peer.device);
    to.set_memory(peer.memory);
    to.set_why(peer.why);
  }
  for (size_t i = 0; i < std::min(stats.runs.size(), kRunStatsMax); ++i) {
    proto::RunStats& to = *wire.add_runs();
    to.set_run(stats.runs[i].run);
    to.set_blocks(stats.runs[i].blocks);
    to.set_uses(stats.runs[i].uses);
    to.set_idle_ms(stats.runs[i].idle_ms);
    to.set_temperature(stats.runs[i].temperature);
  }
  return wire;
}

}  // namespace cistern
