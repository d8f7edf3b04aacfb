#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/chain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/loopback_transport.h"

// Two endpoints on one simulated network and handlers that write down what happens.
namespace cistern {

// Writes down what happens and does what the test says.
class Recorder : public TransportHandler {
 public:
  absl::Status OnHello(PeerId peer, const Hello& hello, HelloAck& ack,
                       std::vector<const MemoryRegion*>& offered) override {
    accepted.push_back(peer);
    if (hello.ticket == "bad") return absl::PermissionDeniedError("ticket refused");
    ack.node_id = "node";
    ack.incarnation = 7;
    if (hello.wants_map && region != nullptr) {
      ack.regions.push_back({5, region->bytes()});
      offered.push_back(region);
    }
    return absl::OkStatus();
  }
  void OnPeerUp(PeerId peer, const HelloAck&) override { up.push_back(peer); }
  void OnPeerDown(PeerId peer, const absl::Status& why) override { down[peer].push_back(why); }
  absl::Status OnPayload(PeerId, const FrameHeader& header, ByteView, PayloadPlan& plan) override {
    ++payloads;
    if (refuse_payload) return absl::ResourceExhaustedError("no room");
    landing.assign(header.payload_bytes + short_plan, std::byte{0xee});
    plan.segments.push_back({landing.data(), landing.size()});
    plan.pieces.push_back({landing.size(), 0, 1});
    return absl::OkStatus();
  }
  void OnFrame(PeerId peer, const InFrame& frame) override {
    frames.push_back({peer, frame.header, Bytes(frame.body.begin(), frame.body.end()),
                      std::vector<uint32_t>(frame.piece_crcs.begin(), frame.piece_crcs.end())});
  }
  void OnSent(PeerId, uint64_t cookie) override { sent.push_back(cookie); }
  void OnPulled(PeerId, uint64_t pull, const PullResult& result) override { pulled[pull].push_back(result); }

  struct Seen {
    PeerId peer;
    FrameHeader header;
    Bytes body;
    std::vector<uint32_t> crcs;
  };
  const MemoryRegion* region = nullptr;
  bool refuse_payload = false;
  size_t short_plan = 0;
  int payloads = 0;
  Bytes landing;
  std::vector<PeerId> accepted, up;
  std::map<PeerId, std::vector<absl::Status>> down;
  std::vector<Seen> frames;
  std::vector<uint64_t> sent;
  std::map<uint64_t, std::vector<PullResult>> pulled;
};

class LoopbackTest : public ::testing::Test {
 protected:
  LoopbackTest() {
    client_.SetHandler(&client_handler_);
    node_->SetHandler(&node_handler_);
  }
  ConnectOptions Options() const {
    ConnectOptions options;
    options.hello.key_algorithm = kKeyAlgorithm;
    return options;
  }
  // Runs until nothing is under way, or for `at_most`.
  void Run(Nanos at_most = 10 * kSecond) {
    const Nanos end = clock_.Now() + at_most;
    for (;;) {
      network_.Route();
      client_.Poll();
      if (node_ != nullptr) node_->Poll();
      const Nanos next = network_.NextEventAt();
      if (next == kNever || next > end) break;
      clock_.Set(std::max(next, clock_.Now()));
    }
    if (clock_.Now() < end) clock_.Set(end);
  }
  PeerId ConnectUp() {
    const absl::StatusOr<PeerId> peer = client_.Connect("sim:node/0", Options());
    EXPECT_TRUE(peer.ok());
    Run(kSecond);
    EXPECT_THAT(client_handler_.up, ::testing::Contains(*peer));
    return *peer;
  }
  // A request from the client to the node with `bytes` of payload.
  absl::Status SendTo(LoopbackTransport& from, PeerId peer, uint64_t id, const Bytes& payload,
                      uint64_t cookie = 0) {
    segment_ = {payload.data(), payload.size()};
    OutFrame frame;
    frame.type = FrameType::kPut;
    frame.request_id = id;
    frame.cookie = cookie;
    if (!payload.empty()) frame.payload = absl::MakeConstSpan(&segment_, 1);
    return from.Send(peer, frame);
  }

  SimClock clock_;
  LoopbackNetwork network_{clock_, 42};
  Recorder client_handler_, node_handler_;
  LoopbackTransport client_{network_, {.host = "client", .listen = {}}};
  std::unique_ptr<LoopbackTransport> node_ =
      std::make_unique<LoopbackTransport>(network_, LoopbackOptions{.host = "node", .listen = {"node/0"}});
  ConstSegment segment_;
  const Bytes payload_ = Bytes(100);  // Lives as long as a borrowed payload has to.
};

}  // namespace cistern
