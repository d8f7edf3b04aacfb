#include <map>
#include <string>

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "proto/cluster.pb.h"

// F61: a peer one version older must read what this one writes. tests/lint/wire_numbers.json keeps the
// numbers of all fields; here are the methods, and bytes that earlier releases wrote.
namespace cistern {
namespace {

TEST(WireNumbers, F61_MethodsKeepTheirNamesAndTypes) {
  const auto* service = proto::ClusterMap::descriptor()->file()->FindServiceByName("Cluster");
  ASSERT_NE(service, nullptr);
  std::map<std::string, std::string> methods;
  for (int i = 0; i < service->method_count(); ++i) {
    const auto* method = service->method(i);
    methods[method->name()] = method->input_type()->name() + ">" + method->output_type()->name();
  }
  const std::map<std::string, std::string> published = {
      {"RegisterNode", "RegisterNodeRequest>RegisterNodeReply"},
      {"Heartbeat", "HeartbeatRequest>HeartbeatReply"},
      {"WatchMap", "WatchMapRequest>ClusterMap"},
      {"GetTicket", "GetTicketRequest>GetTicketReply"},
      {"GetStatus", "GetStatusRequest>GetStatusReply"},
      {"ReportPeersGone", "ReportPeersGoneRequest>ReportPeersGoneReply"},
      {"DrainNode", "DrainNodeRequest>DrainNodeReply"}};
  EXPECT_EQ(methods, published);
}

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

// A field that a newer peer added is ignored, not refused.
TEST(WireNumbers, F61_FieldsOfANewerReleaseAreSkipped) {
  proto::HeartbeatReply reply;
  reply.set_known(true);
  reply.set_epoch(4);
  const std::string newer =
      reply.SerializeAsString() + std::string("\xa2\x06\x03new", 6);  // Field 100, a string.
  proto::HeartbeatReply read;
  ASSERT_TRUE(read.ParseFromString(newer));
  EXPECT_TRUE(read.known());
  EXPECT_EQ(read.epoch(), 4u);
}

}  // namespace
}  // namespace cistern
