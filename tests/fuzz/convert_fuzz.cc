// Control messages: bytes to protobuf to plain values. What converts must convert back to itself.
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "proto/bounded_parse.h"
#include "proto/convert.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

ClusterMap SampleMap() {
  ClusterMap map;
  map.epoch = 3;
  NodeEntry node;
  node.id = "node-1";
  node.incarnation = 2;
  node.state = NodeState::kActive;
  node.shards.resize(2);
  node.shards[0].tcp = "127.0.0.1:41234";
  node.shards[0].unix_name = "cistern-1";
  node.shards[1].tcp = "127.0.0.1:41235";
  map.nodes = {node};
  map.open_moves = {{2, {{"node-1", 1}, {"node-2", 2}}}};
  return map;
}

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  add("map", std::string("m").append(ToWire(SampleMap()).SerializeAsString()));
  NodeStats stats;
  stats.tiers = {{"ram", 10, 100, 3}};
  stats.counters["leases_live"] = 4;
  stats.peers = {{"client 1", "map", "unix", "memfd", "same host"}};
  add("stats", std::string("s").append(ToWire(stats).SerializeAsString()));
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  // protobuf writes a line for each string that is no UTF-8.
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    proto::ClusterMap wire;
    if (!ParseBounded(wire, body)) return 0;
    const absl::StatusOr<ClusterMap> map = FromWire(wire);
    if (!map.ok()) return 0;
    FUZZ_REQUIRE(map->nodes.size() <= kNodesMax);
    const absl::StatusOr<ClusterMap> again = FromWire(ToWire(*map));
    FUZZ_REQUIRE(again.ok());
    FUZZ_REQUIRE(*again == *map);
  } else {
    proto::NodeStats wire;
    if (!ParseBounded(wire, body)) return 0;
    const absl::StatusOr<NodeStats> stats = FromWire(wire);
    if (!stats.ok()) return 0;
    FUZZ_REQUIRE(stats->peers.size() <= kPeerStatsMax);
    FUZZ_REQUIRE(FromWire(ToWire(*stats)).ok());
  }
  return 0;
}
