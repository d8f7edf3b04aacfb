#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/chain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/transport.h"

// What every pair of transports has to do, whatever carries the bytes. A kind of transport takes part with a
// factory; see socket_transport_suite_test.cc.
namespace cistern {

// Writes down what happens, lands payloads in one buffer per request, and does what the test asks inside
// callbacks.
class RecordingHandler : public TransportHandler {
 public:
  struct Seen {
    PeerId peer = 0;
    FrameHeader header;
    Bytes body;
    std::vector<uint32_t> crcs;
  };

  absl::Status OnHello(PeerId peer, const Hello& hello, HelloAck& ack,
                       std::vector<const MemoryRegion*>& offered) override {
    hellos.push_back(hello);
    if (hello.ticket == "bad") return absl::PermissionDeniedError("ticket refused");
    up.push_back(peer);
    ack.node_id = "node-1";
    ack.incarnation = 7;
    if (hello.wants_map && arena != nullptr) {
      ack.regions.push_back({kArenaRegion, arena->bytes()});
      offered.push_back(arena);
    }
    return absl::OkStatus();
  }
  void OnPeerUp(PeerId peer, const HelloAck& ack) override {
    up.push_back(peer);
    last_ack = ack;
  }
  void OnPeerDown(PeerId peer, const absl::Status& why) override {
    down[peer].push_back(why);
    if (on_down) on_down(peer);
  }
  // Lands in `landing[request]`: pieces of piece_bytes, each cut in two segments; every drain_every-th piece
  // is drained.
  absl::Status OnPayload(PeerId peer, const FrameHeader& header, ByteView, PayloadPlan& plan) override {
    ++payloads;
    if (on_payload) on_payload(peer, header);
    if (refuse_payload) return absl::ResourceExhaustedError("no room");
    Bytes& to = landing[header.request_id];
    to.assign(header.payload_bytes + short_plan, std::byte{0xee});
    for (size_t at = 0, i = 1; at < to.size(); at += piece_bytes, ++i) {
      PayloadPlan::Piece piece;
      piece.bytes = std::min(piece_bytes, to.size() - at);
      piece.first_segment = static_cast<uint32_t>(plan.segments.size());
      if (drain_every == 0 || i % drain_every != 0) {
        const size_t first = piece.bytes / 3;
        plan.segments.push_back({to.data() + at, first});
        plan.segments.push_back({to.data() + at + first, piece.bytes - first});
        piece.segment_count = 2;
      }
      plan.pieces.push_back(piece);
    }
    return absl::OkStatus();
  }
  void OnFrame(PeerId peer, const InFrame& frame) override {
    frames.push_back({peer, frame.header, Bytes(frame.body.begin(), frame.body.end()),
                      std::vector<uint32_t>(frame.piece_crcs.begin(), frame.piece_crcs.end())});
    if (on_frame) on_frame(peer, frame);
  }
  void OnSent(PeerId peer, uint64_t cookie) override {
    sent.push_back(cookie);
    if (on_sent) on_sent(peer, cookie);
  }
  void OnPulled(PeerId peer, uint64_t pull, const PullResult& result) override {
    pulled[pull].push_back(result);
    if (on_pulled) on_pulled(peer, pull);
  }

  static constexpr uint32_t kArenaRegion = 5;
  const MemoryRegion* arena = nullptr;
  bool refuse_payload = false;
  size_t short_plan = 0;
  size_t piece_bytes = 64 << 10;
  size_t drain_every = 0;
  std::function<void(PeerId, const FrameHeader&)> on_payload;
  std::function<void(PeerId, const InFrame&)> on_frame;
  std::function<void(PeerId, uint64_t)> on_sent, on_pulled;
  std::function<void(PeerId)> on_down;

  int payloads = 0;
  HelloAck last_ack;
  std::vector<Hello> hellos;
  std::vector<PeerId> up;
  std::map<PeerId, std::vector<absl::Status>> down;
  std::vector<Seen> frames;
  std::map<uint64_t, Bytes> landing;
  std::vector<uint64_t> sent;
  std::map<uint64_t, std::vector<PullResult>> pulled;
};

// A client and a node transport, and how to let time and bytes move between them.
class TransportPair {
 public:
  virtual ~TransportPair() = default;
  virtual Transport& client() = 0;
  virtual Transport& node() = 0;
  virtual std::string address() const = 0;
  // Moves whatever can move once.
  virtual void Step() = 0;
  // Has the client's process vanish without a word of its own.
  virtual void KillClient() = 0;
};

struct TransportKind {
  std::string name;
  bool one_sided = false;
  bool stream_is_bounded = true;  // The carrier takes a bounded number of bytes before the reader reads.
  std::function<std::unique_ptr<TransportPair>(TransportHandler& client, TransportHandler& node)> make;
};

class TransportSuite : public ::testing::TestWithParam<TransportKind> {
 protected:
  static constexpr int kStepsMax = 200'000;

  void SetUp() override {
    absl::StatusOr<MemoryRegion> arena = MemoryRegion::Create("suite-arena", 1 << 20, true);
    absl::StatusOr<MemoryRegion> window = MemoryRegion::Create("suite-window", 1 << 20, false);
    ASSERT_TRUE(arena.ok() && window.ok()) << arena.status() << window.status();
    arena_ = std::make_unique<MemoryRegion>(*std::move(arena));
    window_ = std::make_unique<MemoryRegion>(*std::move(window));
    node_handler_.arena = arena_.get();
    pair_ = GetParam().make(client_handler_, node_handler_);
    ASSERT_NE(pair_, nullptr);
  }
  // Steps until `done`; false when that never comes.
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < kStepsMax; ++i) {
      if (done()) return true;
      pair_->Step();
    }
    return done();
  }
  void Settle(int steps = 200) {
    for (int i = 0; i < steps; ++i) pair_->Step();
  }
  ConnectOptions Options() const {
    ConnectOptions options;
    options.hello.key_algorithm = kKeyAlgorithm;
    options.hello.ticket = "good";
    options.window = window_.get();
    return options;
  }
  // Connects; client_ and node_ name the peer as either side sees it.
  void ConnectUp() {
    const absl::StatusOr<PeerId> peer = pair_->client().Connect(pair_->address(), Options());
    ASSERT_TRUE(peer.ok()) << peer.status();
    client_ = *peer;
    ASSERT_TRUE(Until([&] { return !client_handler_.up.empty() && !node_handler_.up.empty(); }));
    EXPECT_EQ(client_handler_.up.back(), client_);
    node_ = node_handler_.up.back();
  }
  // As if nothing had been before: nothing is warm.
  void ConnectAnew() {
    pair_.reset();
    client_handler_ = RecordingHandler();
    node_handler_ = RecordingHandler();
    node_handler_.arena = arena_.get();
    pair_ = GetParam().make(client_handler_, node_handler_);
    ConnectUp();
  }
  size_t NodeGot(uint64_t request_id) const {
    size_t count = 0;
    for (const auto& frame : node_handler_.frames) count += frame.header.request_id == request_id ? 1 : 0;
    return count;
  }
  static Bytes Pattern(size_t bytes, uint64_t seed) {
    Bytes out(bytes);
    for (size_t i = 0; i < bytes; ++i)
      out[i] = static_cast<std::byte>((i * 131 + seed * 7 + (i >> 9)) & 0xff);
    return out;
  }
  static OutFrame Frame(FrameType type, uint64_t id, ByteView body = {}) {
    OutFrame frame;
    frame.type = type;
    frame.request_id = id;
    frame.body = body;
    return frame;
  }

  RecordingHandler client_handler_, node_handler_;
  std::unique_ptr<MemoryRegion> arena_, window_;
  std::unique_ptr<TransportPair> pair_;
  PeerId client_ = 0, node_ = 0;
};

}  // namespace cistern
