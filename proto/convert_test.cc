#include "proto/convert.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/convert_control.h"

namespace cistern {
namespace {

using testing::HasSubstr;

ClusterMap Map() {
  ClusterMap map;
  map.cluster.bytes[0] = 9;
  map.epoch = 12;
  map.weights_epoch = 2;
  map.run_blocks_cap = 8;
  map.nodes = {{"node-1",
                4,
                NodeState::kActive,
                1.5,
                {{"127.0.0.1:4000", "sock-1", ""}, {"127.0.0.1:4001", "", "f:1"}}},
               {"node-2", 5, NodeState::kGone, 3, {{"[::1]:4000", "", ""}}}};
  map.open_moves = {{11, {{"node-1", 1.5}, {"node-2", 3}}}, {9, {{"node-2", 3}}}};
  return map;
}

NodeStats Stats() {
  NodeStats stats;
  stats.tiers = {{"ram", 10, 20, 3}, {"nvme", 1, 2, 1}};
  stats.hit_blocks = 7;
  stats.miss_blocks = 8;
  stats.cpu_seconds = 1.25;
  stats.counters = {{"leases_live", 4}, {"x_total", std::numeric_limits<uint64_t>::max()}};
  stats.peers = {{"client 1", "map", "shm", "ram", "same host"}};
  return stats;
}

// Applies one change to a good message and returns the refusal.
template <typename Wire>
std::string Refusal(Wire wire, const std::function<void(Wire&)>& change) {
  change(wire);
  auto value = FromWire(wire);
  if (value.ok()) return "accepted";
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(Convert, MapGoesRoundUnchanged) {
  EXPECT_EQ(FromWire(ToWire(Map())).value(), Map());
  ClusterMap empty;
  empty.epoch = 1;
  EXPECT_EQ(FromWire(ToWire(empty)).value(), empty);
}

TEST(Convert, RefusesEachBadFieldOfAMap) {
  using W = proto::ClusterMap;
  auto refusal = [](const std::function<void(W&)>& change) { return Refusal<W>(ToWire(Map()), change); };
  EXPECT_THAT(refusal([](W& m) { m.set_cluster("short"); }), HasSubstr("cluster id"));
  EXPECT_THAT(refusal([](W& m) { m.set_epoch(0); }), HasSubstr("epoch is 0"));
  EXPECT_THAT(refusal([](W& m) { m.set_run_blocks_cap(0); }), HasSubstr("run_blocks_cap"));
  EXPECT_THAT(refusal([](W& m) { m.set_run_blocks_cap(6); }), HasSubstr("run_blocks_cap"));
  EXPECT_THAT(refusal([](W& m) { m.set_run_blocks_cap(8192); }), HasSubstr("run_blocks_cap"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_id(""); }), HasSubstr("node id"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_id("node-2"); }), HasSubstr("order"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_incarnation(0); }), HasSubstr("incarnation"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_state(static_cast<proto::NodeState>(9)); }),
              HasSubstr("state"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_weight(0); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_weight(-1); }), HasSubstr("weight"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_weight(std::numeric_limits<double>::infinity()); }),
              HasSubstr("weight"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->set_weight(std::numeric_limits<double>::quiet_NaN()); }),
              HasSubstr("weight"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->clear_shards(); }), HasSubstr("shards"));
  EXPECT_THAT(refusal([](W& m) {
                while (m.nodes(0).shards_size() <= static_cast<int>(kShardsPerNodeMax)) {
                  m.mutable_nodes(0)->add_shards()->set_tcp("h:1");
                }
              }),
              HasSubstr("shards"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_nodes(0)->mutable_shards(0)->set_tcp("h:0"); }), HasSubstr("tcp"));
  EXPECT_THAT(refusal([](W& m) {
                while (m.nodes_size() <= static_cast<int>(kNodesMax)) *m.add_nodes() = m.nodes(0);
              }),
              HasSubstr("kNodesMax"));
  EXPECT_THAT(refusal([](W& m) { *m.add_open_moves() = m.open_moves(0); }), HasSubstr("kOpenMovesMax"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(0)->set_epoch(12); }), HasSubstr("newest first"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(1)->set_epoch(11); }), HasSubstr("newest first"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(1)->set_epoch(0); }), HasSubstr("epoch 0"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(0)->clear_owners(); }), HasSubstr("owners"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(0)->mutable_owners(0)->set_id("/"); }),
              HasSubstr("owner id"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(0)->mutable_owners(0)->set_weight(0); }),
              HasSubstr("owner weight"));
  EXPECT_THAT(refusal([](W& m) { m.mutable_open_moves(0)->mutable_owners(0)->set_id("node-3"); }),
              HasSubstr("order"));
}

TEST(Convert, StatsGoRoundUnchanged) {
  const proto::NodeStats wire = ToWire(Stats());
  const NodeStats back = FromWire(wire).value();
  EXPECT_EQ(ToWire(back).SerializeAsString().size(), wire.SerializeAsString().size());
  EXPECT_EQ(back.tiers[1].tier, "nvme");
  EXPECT_EQ(back.tiers[0].parts, 3u);
  EXPECT_EQ(back.counters, Stats().counters);
  EXPECT_EQ(back.hit_blocks, 7u);
  EXPECT_EQ(back.miss_blocks, 8u);
  EXPECT_EQ(back.cpu_seconds, 1.25);
  EXPECT_EQ(back.peers[0].why, "same host");
}

TEST(Convert, RefusesEachBadFieldOfStats) {
  using W = proto::NodeStats;
  auto refusal = [](const std::function<void(W&)>& change) { return Refusal<W>(ToWire(Stats()), change); };
  EXPECT_THAT(refusal([](W& s) { s.mutable_tiers(0)->set_tier(""); }), HasSubstr("tier name"));
  EXPECT_THAT(refusal([](W& s) { s.mutable_tiers(0)->set_tier(std::string(17, 'a')); }),
              HasSubstr("tier name"));
  EXPECT_THAT(refusal([](W& s) {
                for (int i = 0; i < 9; ++i) s.add_tiers()->set_tier("x");
              }),
              HasSubstr("too many tiers"));
  EXPECT_THAT(refusal([](W& s) { s.set_cpu_seconds(-1); }), HasSubstr("cpu_seconds"));
  EXPECT_THAT(refusal([](W& s) { s.set_cpu_seconds(std::numeric_limits<double>::quiet_NaN()); }),
              HasSubstr("cpu_seconds"));
  EXPECT_THAT(refusal([](W& s) { (*s.mutable_counters())[std::string(200, 'a')] = 1; }),
              HasSubstr("counter name"));
  EXPECT_THAT(refusal([](W& s) { (*s.mutable_counters())["a\nb"] = 1; }), HasSubstr("counter name"));
  EXPECT_THAT(refusal([](W& s) {
                for (size_t i = 0; i <= kCountersMax; ++i) (*s.mutable_counters())[absl::StrCat("c", i)] = 1;
              }),
              HasSubstr("too many counters"));
  EXPECT_THAT(refusal([](W& s) {
                for (size_t i = 0; i <= kPeerStatsMax; ++i) s.add_peers();
              }),
              HasSubstr("too many peers"));
  EXPECT_THAT(refusal([](W& s) { s.mutable_peers(0)->set_why(std::string(300, 'a')); }), HasSubstr("peer"));
}

// What one side sends, the other takes: the sender keeps the bounds as well.
TEST(Convert, SenderKeepsTheBoundsOfStats) {
  NodeStats stats = Stats();
  stats.peers.resize(kPeerStatsMax + 5, stats.peers[0]);
  for (size_t i = 0; i < kCountersMax + 5; ++i) stats.counters[absl::StrCat("c", i)] = i;
  EXPECT_TRUE(FromWire(ToWire(stats)).ok());
}

RegisterRequest Request() {
  RegisterRequest request;
  request.node_id = "node-1";
  request.cluster = Map().cluster;
  request.boot_nonce = 77;
  request.weight = 2.5;
  request.shards = Map().nodes[0].shards;
  request.ram_bytes = 1 << 20;
  request.held_incarnation = 6;
  request.place = "boot/1:2";
  request.proof = std::string(32, 'p');
  return request;
}

TEST(ConvertControl, RegisterGoesRoundAndNamesTheBadField) {
  const RegisterRequest back = FromWire(ToWire(Request())).value();
  EXPECT_EQ(back.cluster, Request().cluster);
  EXPECT_EQ(back.shards, Request().shards);
  EXPECT_EQ(back.boot_nonce, 77u);
  EXPECT_EQ(back.weight, 2.5);
  EXPECT_EQ(back.ram_bytes, Request().ram_bytes);
  EXPECT_EQ(back.held_incarnation, 6u);
  EXPECT_EQ(back.place, "boot/1:2");
  EXPECT_EQ(back.proof, Request().proof);
  using W = proto::RegisterNodeRequest;
  auto refusal = [](const std::function<void(W&)>& change) { return Refusal<W>(ToWire(Request()), change); };
  EXPECT_THAT(refusal([](W& r) { r.set_cluster("x"); }), HasSubstr("cluster id"));
  EXPECT_THAT(refusal([](W& r) { r.set_proof("x"); }), HasSubstr("proof"));
  EXPECT_THAT(refusal([](W& r) { r.set_node_id("a b"); }), HasSubstr("node_id"));
  EXPECT_THAT(refusal([](W& r) { r.set_boot_nonce(0); }), HasSubstr("boot_nonce"));
  EXPECT_THAT(refusal([](W& r) { r.set_place("a b"); }), HasSubstr("place"));
  EXPECT_THAT(refusal([](W& r) { r.set_place(std::string(kPlaceBytesMax + 1, 'x')); }), HasSubstr("place"));
  EXPECT_THAT(refusal([](W& r) { r.clear_shards(); }), HasSubstr("shards"));
  EXPECT_THAT(refusal([](W& r) {
                while (r.shards_size() <= 64) *r.add_shards() = r.shards(0);
              }),
              HasSubstr("shards"));
}

TEST(ConvertControl, HeartbeatWithBadFiguresStillCounts) {
  HeartbeatRequest request;
  request.node_id = "node-1";
  request.incarnation = 3;
  request.known_epoch = 5;
  request.shard_last_poll_ms_ago = {1, 2};
  request.stats = Stats();
  request.proof = std::string(32, 'p');
  bool refused = true;
  HeartbeatRequest back = FromWire(ToWire(request), refused).value();
  EXPECT_FALSE(refused);
  EXPECT_EQ(back.shard_last_poll_ms_ago, request.shard_last_poll_ms_ago);
  EXPECT_EQ(back.known_epoch, 5u);
  EXPECT_EQ(back.stats.hit_blocks, 7u);

  proto::HeartbeatRequest wire = ToWire(request);
  wire.mutable_stats()->set_cpu_seconds(-1);
  back = FromWire(wire, refused).value();
  EXPECT_TRUE(refused);
  EXPECT_EQ(back.stats.hit_blocks, 0u);

  wire.set_incarnation(0);
  EXPECT_FALSE(FromWire(wire, refused).ok());
  wire = ToWire(request);
  for (size_t i = 0; i <= kShardsPerNodeMax; ++i) wire.add_shard_last_poll_ms_ago(1);
  EXPECT_FALSE(FromWire(wire, refused).ok());
}

TEST(ConvertControl, TicketAndRegistrationAreChecked) {
  TicketGrant grant;
  grant.sealed = "sealed";
  grant.namespace_secret[1] = 3;
  grant.expires_unix_s = 99;
  const TicketGrant back = FromWire(ToWire(grant)).value();
  EXPECT_EQ(back.sealed, "sealed");
  EXPECT_EQ(back.namespace_secret, grant.namespace_secret);
  using W = proto::GetTicketReply;
  auto refusal = [&](const std::function<void(W&)>& change) { return Refusal<W>(ToWire(grant), change); };
  EXPECT_THAT(refusal([](W& t) { t.set_ticket(""); }), HasSubstr("ticket"));
  EXPECT_THAT(refusal([](W& t) { t.set_ticket(std::string(kTicketBytesMax + 1, 'x')); }),
              HasSubstr("ticket"));
  EXPECT_THAT(refusal([](W& t) { t.set_namespace_secret("x"); }), HasSubstr("secret"));
  EXPECT_THAT(refusal([](W& t) { t.set_expires_unix_s(0); }), HasSubstr("expiry"));
  proto::RegisterNodeReply reply;
  reply.set_cluster(std::string(16, 'c'));
  reply.set_incarnation(1);
  reply.set_heartbeat_ms(0);  // Would be a busy loop.
  EXPECT_FALSE(FromWire(reply).ok());
  reply.set_heartbeat_ms(500);
  EXPECT_TRUE(FromWire(reply).ok());
}

TEST(ConvertControl, DrainGoesRoundAndNamesTheBadField) {
  const DrainRequest back = FromWire(ToWire(DrainRequest{"sealed", "node-1", true})).value();
  EXPECT_EQ(back.ticket, "sealed");
  EXPECT_EQ(back.node_id, "node-1");
  EXPECT_TRUE(back.undo);
  using W = proto::DrainNodeRequest;
  auto refusal = [](const std::function<void(W&)>& change) {
    return Refusal<W>(ToWire(DrainRequest{"sealed", "node-1", false}), change);
  };
  EXPECT_THAT(refusal([](W& r) { r.clear_ticket(); }), HasSubstr("ticket"));
  EXPECT_THAT(refusal([](W& r) { r.set_node_id("a b"); }), HasSubstr("node_id"));
  proto::DrainNodeReply reply;
  reply.set_state(proto::NODE_STATE_DRAINING);
  EXPECT_EQ(FromWire(reply)->state, NodeState::kDraining);
  reply.set_state(static_cast<proto::NodeState>(9));
  EXPECT_FALSE(FromWire(reply).ok());
}

TEST(ConvertControl, ReportsOfDeadNodesGoRoundWithinTheirBounds) {
  GoneReport report{"sealed", {{"node-1", 3}, {"node-2", 4}}};
  const GoneReport back = FromWire(ToWire(report)).value();
  EXPECT_EQ(back.ticket, report.ticket);
  EXPECT_EQ(back.peers, report.peers);
  using W = proto::ReportPeersGoneRequest;
  auto refusal = [&](const std::function<void(W&)>& change) { return Refusal<W>(ToWire(report), change); };
  EXPECT_THAT(refusal([](W& r) { r.clear_ticket(); }), HasSubstr("ticket"));
  EXPECT_THAT(refusal([](W& r) { r.set_ticket(std::string(kTicketBytesMax + 1, 'x')); }),
              HasSubstr("ticket"));
  EXPECT_THAT(refusal([](W& r) { r.mutable_peers(1)->set_node_id("../x"); }), HasSubstr("node_id"));
  EXPECT_THAT(refusal([](W& r) { r.mutable_peers(0)->set_incarnation(0); }), HasSubstr("incarnation"));
  report.peers.assign(kGonePeersMax, {"node-1", 3});
  EXPECT_TRUE(FromWire(ToWire(report)).ok());
  EXPECT_THAT(refusal([](W& r) { *r.add_peers() = r.peers(0); }), HasSubstr("kGonePeersMax"));
}

TEST(ConvertControl, StatusGoesRoundAndRecordsFollowTheMap) {
  ClusterStatus status;
  status.router_id = "router-1";
  status.address = "127.0.0.1:7400";
  status.pid = 5;
  status.uptime_ms = 6;
  status.map = Map();
  for (const NodeEntry& entry : status.map.nodes) status.nodes.push_back({entry, Stats(), 12, {3}});
  status.counters = {{"a", 1}};
  const ClusterStatus back = FromWire(ToWire(status)).value();
  EXPECT_EQ(back.map, status.map);
  ASSERT_EQ(back.nodes.size(), 2u);
  EXPECT_EQ(back.nodes[1].entry, status.map.nodes[1]);
  EXPECT_EQ(back.nodes[0].last_heartbeat_ms_ago, 12u);
  EXPECT_EQ(back.counters, status.counters);
  proto::GetStatusReply wire = ToWire(status);
  wire.mutable_nodes()->RemoveLast();
  EXPECT_FALSE(FromWire(wire).ok());
  wire = ToWire(status);
  wire.mutable_nodes(0)->mutable_entry()->set_id("other");
  EXPECT_FALSE(FromWire(wire).ok());
}

// 1,000 nodes, each with as many clients and runs as it tells of.
TEST(ConvertControl, AStatusOfManyNodesFitsIntoOneMessageAndSaysWhatItLeavesOut) {
  ClusterStatus status;
  const auto add = [&](size_t nodes) {
    for (size_t i = 0; i < nodes; ++i) {
      NodeRecord node;
      node.entry.id = "node-" + std::to_string(status.nodes.size());
      for (size_t k = 0; k < 150; ++k)
        node.stats.counters[std::to_string(k) + std::string(27, 'c')] = k << 50;
      for (size_t k = 0; k < kPeerStatsMax; ++k) {
        const std::string text(64, 'p');
        node.stats.peers.push_back({text, "socket", text, text, text});
      }
      node.stats.runs.resize(kRunStatsMax, {.run = "0011223344556677", .temperature = "warm"});
      status.nodes.push_back(std::move(node));
    }
  };
  add(200);
  proto::GetStatusReply wire = ToWire(status);
  EXPECT_TRUE(wire.counters().empty());
  EXPECT_EQ(wire.nodes(0).stats().peers_size(), static_cast<int>(kPeerStatsMax));
  add(800);
  wire = ToWire(status);
  EXPECT_LE(wire.ByteSizeLong(), static_cast<size_t>(kControlMessageBytesMax));
  EXPECT_EQ(wire.counters().at("status_left_out_runs"), 1000u);
  EXPECT_EQ(wire.counters().at("status_left_out_peers"), 1000u);
  EXPECT_FALSE(wire.counters().contains("status_left_out_counters"));
  EXPECT_EQ(wire.nodes(999).stats().runs_size(), 0);
  EXPECT_EQ(wire.nodes(999).stats().peers_size(), 0);
  EXPECT_EQ(wire.nodes(999).stats().counters_size(), 150);
}

}  // namespace
}  // namespace cistern
