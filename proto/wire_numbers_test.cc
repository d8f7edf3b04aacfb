#include <map>
#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include "proto/cluster.pb.h"
#include "proto/router_state.pb.h"

// F61: a peer one version older must read what this one writes. A number that was ever given to a field,
// enumerator or method keeps its meaning; this table only grows.
namespace cistern {
namespace {

const std::map<std::string, int>& Published() {
  static const std::map<std::string, int> kTable = {
      {"ShardAddress.tcp", 1},
      {"ShardAddress.unix_name", 2},
      {"ShardAddress.fabric", 3},
      {"NodeEntry.id", 1},
      {"NodeEntry.incarnation", 2},
      {"NodeEntry.state", 3},
      {"NodeEntry.weight", 4},
      {"NodeEntry.shards", 5},
      {"OwnerSet.epoch", 1},
      {"OwnerSet.owners", 2},
      {"OwnerSet.Owner.id", 1},
      {"OwnerSet.Owner.weight", 2},
      {"ClusterMap.cluster", 1},
      {"ClusterMap.epoch", 2},
      {"ClusterMap.weights_epoch", 3},
      {"ClusterMap.run_blocks_cap", 4},
      {"ClusterMap.nodes", 5},
      {"ClusterMap.open_moves", 6},
      {"TierStats.tier", 1},
      {"TierStats.used_bytes", 2},
      {"TierStats.capacity_bytes", 3},
      {"TierStats.parts", 4},
      {"PeerStats.peer", 1},
      {"PeerStats.transport", 2},
      {"PeerStats.device", 3},
      {"PeerStats.memory", 4},
      {"PeerStats.why", 5},
      {"NodeStats.tiers", 1},
      {"NodeStats.hit_blocks", 2},
      {"NodeStats.miss_blocks", 3},
      {"NodeStats.cpu_seconds", 4},
      {"NodeStats.counters", 5},
      {"NodeStats.peers", 6},
      {"RegisterNodeRequest.node_id", 1},
      {"RegisterNodeRequest.cluster", 2},
      {"RegisterNodeRequest.boot_nonce", 3},
      {"RegisterNodeRequest.proof", 4},
      {"RegisterNodeRequest.weight", 5},
      {"RegisterNodeRequest.shards", 6},
      {"RegisterNodeRequest.ram_bytes", 7},
      {"RegisterNodeRequest.held_incarnation", 8},
      {"RegisterNodeReply.cluster", 1},
      {"RegisterNodeReply.incarnation", 2},
      {"RegisterNodeReply.heartbeat_ms", 3},
      {"RegisterNodeReply.map", 4},
      {"HeartbeatRequest.node_id", 1},
      {"HeartbeatRequest.incarnation", 2},
      {"HeartbeatRequest.shard_last_poll_ms_ago", 3},
      {"HeartbeatRequest.stats", 4},
      {"HeartbeatRequest.known_epoch", 5},
      {"HeartbeatRequest.proof", 6},
      {"HeartbeatReply.known", 1},
      {"HeartbeatReply.epoch", 2},
      {"HeartbeatReply.map", 3},
      {"WatchMapRequest.known_epoch", 1},
      {"GetTicketRequest.tenant", 1},
      {"GetTicketRequest.rights", 2},
      {"GetTicketReply.cluster", 1},
      {"GetTicketReply.ticket", 2},
      {"GetTicketReply.namespace_secret", 3},
      {"GetTicketReply.expires_unix_s", 4},
      {"NodeRecord.entry", 1},
      {"NodeRecord.stats", 2},
      {"NodeRecord.last_heartbeat_ms_ago", 3},
      {"NodeRecord.shard_last_poll_ms_ago", 4},
      {"GetStatusReply.router_id", 1},
      {"GetStatusReply.address", 2},
      {"GetStatusReply.pid", 3},
      {"GetStatusReply.uptime_ms", 4},
      {"GetStatusReply.map", 5},
      {"GetStatusReply.nodes", 6},
      {"GetStatusReply.counters", 7},
      {"StoredMap.schema", 1},
      {"StoredMap.map", 2},
      {"StoredMap.last_incarnation", 3},
      {"StoredNode.boot_nonce", 1},
      {"StoredNode.old_nonces", 2},
      {"NODE_STATE_JOINING", 0},
      {"NODE_STATE_ACTIVE", 1},
      {"NODE_STATE_DRAINING", 2},
      {"NODE_STATE_GONE", 3},
  };
  return kTable;
}

void Collect(const google::protobuf::Descriptor& message, std::map<std::string, int>& out) {
  if (message.options().map_entry()) return;
  const std::string prefix = message.full_name().substr(std::string("cistern.proto.").size());
  for (int i = 0; i < message.field_count(); ++i)
    out[prefix + "." + message.field(i)->name()] = message.field(i)->number();
  for (int i = 0; i < message.nested_type_count(); ++i) Collect(*message.nested_type(i), out);
}

std::map<std::string, int> Present() {
  std::map<std::string, int> out;
  for (const auto* file : {proto::ClusterMap::descriptor()->file(), proto::StoredMap::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) Collect(*file->message_type(i), out);
    for (int i = 0; i < file->enum_type_count(); ++i) {
      for (int j = 0; j < file->enum_type(i)->value_count(); ++j) {
        out[file->enum_type(i)->value(j)->name()] = file->enum_type(i)->value(j)->number();
      }
    }
  }
  return out;
}

TEST(WireNumbers, F61_StayAsPublished) { EXPECT_EQ(Present(), Published()); }

TEST(WireNumbers, F61_MethodsKeepTheirNames) {
  const auto* service = proto::ClusterMap::descriptor()->file()->FindServiceByName("Cluster");
  ASSERT_NE(service, nullptr);
  std::map<std::string, std::string> methods;
  for (int i = 0; i < service->method_count(); ++i) {
    methods[service->method(i)->name()] =
        service->method(i)->input_type()->name() + ">" + service->method(i)->output_type()->name();
  }
  const std::map<std::string, std::string> published = {
      {"RegisterNode", "RegisterNodeRequest>RegisterNodeReply"},
      {"Heartbeat", "HeartbeatRequest>HeartbeatReply"},
      {"WatchMap", "WatchMapRequest>ClusterMap"},
      {"GetTicket", "GetTicketRequest>GetTicketReply"},
      {"GetStatus", "GetStatusRequest>GetStatusReply"}};
  EXPECT_EQ(methods, published);
}

// A map as the first release wrote it, byte for byte.
TEST(WireNumbers, F61_AnOldMapStillDecodes) {
  const std::string wire(
      "\x0a\x10"
      "0123456789abcdef"
      "\x10\x07\x20\x08"
      "\x2a\x27\x0a\x06node-1\x10\x03\x18\x01\x21\x00\x00\x00\x00\x00\x00\x00\x40\x2a\x10\x0a\x0b"
      "127.0.0.1:5\x12\x01u"
      "\x32\x15\x08\x06\x12\x11\x0a\x06node-1\x11\x00\x00\x00\x00\x00\x00\x00\x40",
      18 + 4 + 41 + 23);
  proto::ClusterMap map;
  ASSERT_TRUE(map.ParseFromString(wire));
  EXPECT_EQ(map.cluster(), "0123456789abcdef");
  EXPECT_EQ(map.epoch(), 7u);
  EXPECT_EQ(map.run_blocks_cap(), 8u);
  ASSERT_EQ(map.nodes_size(), 1);
  EXPECT_EQ(map.nodes(0).id(), "node-1");
  EXPECT_EQ(map.nodes(0).incarnation(), 3u);
  EXPECT_EQ(map.nodes(0).state(), proto::NODE_STATE_ACTIVE);
  EXPECT_EQ(map.nodes(0).weight(), 2.0);
  EXPECT_EQ(map.nodes(0).shards(0).tcp(), "127.0.0.1:5");
  EXPECT_EQ(map.nodes(0).shards(0).unix_name(), "u");
  ASSERT_EQ(map.open_moves_size(), 1);
  EXPECT_EQ(map.open_moves(0).owners(0).weight(), 2.0);
}

}  // namespace
}  // namespace cistern
