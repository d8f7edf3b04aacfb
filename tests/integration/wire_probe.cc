// Speaks to a node without the client library: what strangers, old releases and writers that die half-way do.
//   wire_probe hello ADDRESS VERSION ALGORITHM CLUSTER_HEX    prints {"refused": MESSAGE} or {"up": true}
//   wire_probe offer ROUTER PARTS                             offers PARTS new parts, prints {"slots": N},
//   then waits to be killed
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/control/router_link.h"
#include "core/chain.h"
#include "core/placement.h"
#include "transport/socket_transport.h"

namespace {

using namespace cistern;  // NOLINT: a program of one file.

class Probe : public TransportHandler {
 public:
  absl::Status OnHello(PeerId, const Hello&, HelloAck&, std::vector<const MemoryRegion*>&) override {
    return absl::UnimplementedError("a probe accepts nobody");
  }
  void OnPeerUp(PeerId, const HelloAck&) override { up = true; }
  void OnPeerDown(PeerId, const absl::Status& status) override {
    down = true;
    why = status;
  }
  absl::Status OnPayload(PeerId, const FrameHeader&, ByteView, PayloadPlan&) override {
    return absl::InvalidArgumentError("no payload expected");
  }
  void OnFrame(PeerId, const InFrame& frame) override {
    type = frame.header.type;
    body.assign(frame.body.begin(), frame.body.end());
    answered = true;
  }
  void OnSent(PeerId, uint64_t) override {}
  void OnPulled(PeerId, uint64_t, const PullResult&) override {}
  bool up = false, down = false, answered = false;
  absl::Status why;
  FrameType type{};
  Bytes body;
};

template <typename Condition>
bool Wait(Transport& transport, Condition condition) {
  BootClock clock;
  const Nanos end = clock.Now() + 10 * kSecond;
  while (!condition() && clock.Now() < end) {
    if (transport.Poll()) continue;
    pollfd ready{transport.WaitFd(), POLLIN, 0};
    poll(&ready, 1, 100);
  }
  return condition();
}

int SayHello(const std::string& address, const std::string& version, const std::string& algorithm,
             const std::string& cluster) {
  BootClock clock;
  auto transport = SocketTransport::Create(clock);
  if (!transport.ok()) return 2;
  Probe probe;
  (*transport)->SetHandler(&probe);
  ConnectOptions options;
  options.hello.version_min = options.hello.version_max =
      static_cast<uint16_t>(std::strtoul(version.c_str(), nullptr, 10));
  options.hello.key_algorithm = algorithm == "-" ? kKeyAlgorithm : algorithm;
  for (size_t i = 0; i + 1 < cluster.size() && i / 2 < options.hello.cluster.bytes.size(); i += 2) {
    options.hello.cluster.bytes[i / 2] =
        static_cast<uint8_t>(std::strtoul(cluster.substr(i, 2).c_str(), nullptr, 16));
  }
  options.hello.ticket = "not a ticket";
  if (!(*transport)->Connect(address, options).ok()) return 2;
  Wait(**transport, [&] { return probe.up || probe.down; });
  if (probe.up) {
    std::puts("{\"up\": true}");
    return 0;
  }
  std::string message(probe.why.message());
  for (char& c : message) c = c == '"' || c == '\\' || c == '\n' ? '\'' : c;
  std::printf("{\"code\": %d, \"refused\": \"%s\"}\n", static_cast<int>(probe.why.code()), message.c_str());
  return 0;
}

int OfferAndHang(const std::string& router, uint32_t parts) {
  RouterLinkOptions link_options;
  link_options.router = router;
  RouterLink link(link_options, {[](const ClusterMap&) {}, [](const TicketGrant&) {}});
  if (const absl::Status ready = link.WaitReady(10 * kSecond); !ready.ok()) {
    std::fprintf(stderr, "%s\n", std::string(ready.message()).c_str());
    return 2;
  }
  const ClusterMap map = *link.map();
  const TicketGrant ticket = *link.ticket();
  BootClock clock;
  auto transport = SocketTransport::Create(clock);
  if (!transport.ok()) return 2;
  Probe probe;
  (*transport)->SetHandler(&probe);
  ConnectOptions options;
  options.hello.key_algorithm = kKeyAlgorithm;
  options.hello.cluster = ticket.cluster;
  options.hello.ticket = ticket.sealed;
  const absl::StatusOr<PeerId> peer =
      (*transport)->Connect("tcp:" + map.nodes.at(0).shards.at(0).tcp, options);
  if (!peer.ok() || !Wait(**transport, [&] { return probe.up || probe.down; }) || probe.down) return 2;

  ChainRequest offer;
  offer.part_bytes = 1 << 20;
  offer.deadline_ms = 30'000;
  offer.coords = {PartCoord{}};
  offer.blocks.resize(parts);
  for (uint32_t i = 0; i < parts; ++i) {
    offer.blocks[i].hash.bytes.fill(static_cast<uint8_t>(i + 1));
    offer.blocks[i].fingerprint = i;
  }
  offer.runs = {{offer.blocks[0].hash, 0, parts}};
  Bytes body;
  offer.Encode(body);
  OutFrame frame;
  frame.type = FrameType::kOffer;
  frame.request_id = 1;
  frame.body = body;
  if (!(*transport)->Send(*peer, frame).ok() || !Wait(**transport, [&] { return probe.answered; })) return 2;
  OfferReply reply;
  if (probe.type != FrameType::kOfferReply || !reply.Decode(probe.body).ok()) return 2;
  uint32_t slots = 0;
  for (const OfferReply::Slot& slot : reply.slots) slots += slot.result == PartResult::kOk;
  std::printf("{\"slots\": %u, \"node\": \"%s\"}\n", slots, map.nodes[0].id.c_str());
  std::fflush(stdout);
  for (;;) Wait(**transport, [] { return false; });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && std::strcmp(argv[1], "hello") == 0) return SayHello(argv[2], argv[3], argv[4], argv[5]);
  if (argc == 4 && std::strcmp(argv[1], "offer") == 0) {
    return OfferAndHang(argv[2], static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)));
  }
  std::fprintf(stderr, "usage: wire_probe hello ADDRESS VERSION ALGORITHM CLUSTER | offer ROUTER PARTS\n");
  return 2;
}
