// Requests and replies of the Cluster service: bytes to protobuf to plain values. What converts must convert
// back to itself.
#include <string>

#include <google/protobuf/stubs/logging.h>

#include "proto/bounded_parse.h"
#include "proto/convert_control.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

// The first byte of an input says which message the rest is.
enum Kind : uint8_t { kRegister, kRegistration, kHeartbeat, kTicket, kStatus, kGone, kDrain, kKinds };

std::string Input(Kind kind, const google::protobuf::Message& wire) {
  return std::string(1, static_cast<char>(kind)).append(wire.SerializeAsString());
}

// `convert` is FromWire; the wire form of its value must convert to the same wire form again.
template <typename Wire, typename Convert>
void RoundTrip(const std::string& body, Convert convert) {
  Wire wire;
  if (!ParseBounded(wire, body)) return;
  const auto value = convert(wire);
  if (!value.ok()) return;
  const auto first = ToWire(*value);
  const auto again = convert(first);
  FUZZ_REQUIRE(again.ok());
  FUZZ_REQUIRE(ToWire(*again).ByteSizeLong() == first.ByteSizeLong());
}

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  RegisterRequest request;
  request.node_id = "node-1";
  request.boot_nonce = 7;
  request.weight = 2;
  request.shards = {{"127.0.0.1:4000", "cistern-1", ""}};
  request.place = "boot/1:2";
  request.proof = std::string(32, 'p');
  add("register", Input(kRegister, ToWire(request)));
  proto::RegisterNodeReply reply;
  reply.set_cluster(std::string(16, 'c'));
  reply.set_incarnation(3);
  reply.set_heartbeat_ms(500);
  add("registration", Input(kRegistration, reply));
  HeartbeatRequest beat;
  beat.node_id = "node-1";
  beat.incarnation = 3;
  beat.shard_last_poll_ms_ago = {1, 2};
  beat.stats.tiers = {{"ram", 1, 2, 3}};
  beat.stats.counters = {{"leases_live", 4}};
  beat.proof = std::string(32, 'p');
  add("heartbeat", Input(kHeartbeat, ToWire(beat)));
  TicketGrant grant;
  grant.sealed = "sealed";
  grant.expires_unix_s = 99;
  add("ticket", Input(kTicket, ToWire(grant)));
  ClusterStatus status;
  status.map.epoch = 4;
  status.map.nodes = {{"node-1", 3, NodeState::kActive, 1, request.shards}};
  status.nodes = {{status.map.nodes[0], beat.stats, 5, {6}}};
  status.counters = {{"tickets_total", 1}};
  add("status", Input(kStatus, ToWire(status)));
  add("gone", Input(kGone, ToWire(GoneReport{"sealed", {{"node-1", 3}, {"node-2", 4}}})));
  add("drain", Input(kDrain, ToWire(DrainRequest{"sealed", "node-1", true})));
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  // protobuf writes a line for each string that is no UTF-8.
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % kKinds) {
    case kRegister:
      RoundTrip<proto::RegisterNodeRequest>(body, [](const auto& wire) { return FromWire(wire); });
      break;
    case kRegistration: {
      proto::RegisterNodeReply wire;
      if (ParseBounded(wire, body)) static_cast<void>(FromWire(wire));
      break;
    }
    case kHeartbeat:
      RoundTrip<proto::HeartbeatRequest>(body, [](const auto& wire) {
        bool stats_refused = false;
        return FromWire(wire, stats_refused);
      });
      break;
    case kTicket:
      RoundTrip<proto::GetTicketReply>(body, [](const auto& wire) { return FromWire(wire); });
      break;
    case kGone:
      RoundTrip<proto::ReportPeersGoneRequest>(body, [](const auto& wire) { return FromWire(wire); });
      break;
    case kDrain:
      RoundTrip<proto::DrainNodeRequest>(body, [](const auto& wire) { return FromWire(wire); });
      break;
    default:
      RoundTrip<proto::GetStatusReply>(body, [](const auto& wire) { return FromWire(wire); });
  }
  return 0;
}
