#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "transport/frame_limits.h"
#include "transport/transport.h"

namespace cistern {

// A transport without a wire, for tests of one shard: the test plays every client. Frames go in by Deliver
// and come out in `sent`; payloads are read when Poll runs, or only at FlushSends when `hold_sends` is set,
// as a slow peer would have it. Owner: the test. One thread.
class FakeTransport final : public Transport {
 public:
  struct Sent {
    PeerId peer = 0;
    FrameType type{};
    uint16_t flags = 0;
    uint64_t request_id = 0;
    Bytes body;
    std::vector<ConstSegment> segments;
    std::vector<std::byte> payload;  // Filled when the bytes are "on the wire".
    uint64_t cookie = 0;
    bool done = false;
  };

  bool hold_sends = false;  // Payloads wait for FlushSends.
  bool can_cancel = true;
  bool keep_frames = true;  // False: replies are counted, not kept (benchmarks, allocation tests).
  bool pulls_wait = false;  // Pulls end at FlushPulls.
  uint32_t longest_pull_bytes = 0;
  bool send_queue_full = false;
  std::vector<Sent> sent;
  uint64_t frames_sent = 0;
  uint64_t cancels = 0;
  std::vector<std::pair<PeerId, absl::Status>> fenced;

  // --- the client's side
  absl::StatusOr<PeerId> Accept(const Hello& hello, bool one_sided = false,
                                const MemoryRegion* window = nullptr) {
    const PeerId peer = ++last_peer_;
    HelloAck ack;
    std::vector<const MemoryRegion*> regions;
    if (absl::Status status = handler_->OnHello(peer, hello, ack, regions); !status.ok()) return status;
    CISTERN_CHECK(ack.regions.size() == regions.size());
    peers_[peer] = Peer{.path = {.kind = one_sided ? PathKind::kMap : PathKind::kSocket,
                                 .device = "fake",
                                 .memory = "host",
                                 .why = "test",
                                 .one_sided = one_sided},
                        .window = window,
                        .ack = ack,
                        .regions = regions,
                        .header = {},
                        .body = {},
                        .plan = {}};
    return peer;
  }
  const HelloAck& ack(PeerId peer) { return peers_.at(peer).ack; }
  const std::vector<const MemoryRegion*>& regions(PeerId peer) { return peers_.at(peer).regions; }
  bool IsUp(PeerId peer) const { return peers_.contains(peer); }

  template <typename Message>
  void Deliver(PeerId peer, FrameType type, uint64_t request_id, const Message& message, uint16_t flags = 0,
               absl::Span<const std::byte> payload = {}) {
    BeginFrame(peer, type, request_id, message, flags, payload.size());
    EndFrame(peer, payload);
  }
  // The same in two steps: header and body first, the payload later or never.
  template <typename Message>
  void BeginFrame(PeerId peer, FrameType type, uint64_t request_id, const Message& message, uint16_t flags,
                  size_t payload_bytes) {
    Peer& state = peers_.at(peer);
    state.body.clear();
    message.Encode(state.body);
    state.header = FrameHeader{.type = type,
                               .flags = flags,
                               .request_id = request_id,
                               .body_bytes = static_cast<uint32_t>(state.body.size()),
                               .payload_bytes = payload_bytes};
    state.plan.Clear();
    state.drained =
        payload_bytes > 0 && !handler_->OnPayload(peer, state.header, state.body, state.plan).ok();
    state.cancelled = false;
  }
  void EndFrame(PeerId peer, absl::Span<const std::byte> payload) {
    Peer& state = peers_.at(peer);
    if (state.drained || state.cancelled) return;
    std::vector<uint32_t> crcs;
    size_t at = 0;
    for (const PayloadPlan::Piece& piece : state.plan.pieces) {
      crcs.push_back(Crc32c(payload.data() + at, piece.bytes));
      for (uint32_t s = 0; s < piece.segment_count; ++s) {
        const Segment& segment = state.plan.segments[piece.first_segment + s];
        std::memcpy(segment.data, payload.data() + at, segment.bytes);
      }
      at += piece.bytes;
    }
    CISTERN_CHECK(at == payload.size());
    const Bytes body = state.body;  // The handler may fence the peer.
    handler_->OnFrame(peer, InFrame{.header = state.header, .body = body, .piece_crcs = crcs});
  }
  // A body as it stands, good or bad.
  void DeliverRaw(PeerId peer, FrameType type, uint64_t request_id, const Bytes& body, uint16_t flags = 0) {
    handler_->OnFrame(peer, InFrame{.header = {.type = type, .flags = flags, .request_id = request_id},
                                    .body = body,
                                    .piece_crcs = {}});
  }
  // The peer's process is gone.
  void Kill(PeerId peer) {
    peers_.erase(peer);
    handler_->OnPeerDown(peer, absl::UnavailableError("connection reset"));
  }
  void FlushSends() {
    for (size_t i = 0; i < sent.size(); ++i) {
      if (sent[i].done) continue;
      sent[i].done = true;
      if (!IsUp(sent[i].peer)) continue;
      for (const ConstSegment& segment : sent[i].segments) {
        sent[i].payload.insert(sent[i].payload.end(), segment.data, segment.data + segment.bytes);
      }
      if (sent[i].cookie != 0) handler_->OnSent(sent[i].peer, sent[i].cookie);
    }
  }
  void FlushPulls() {
    auto waiting = std::exchange(waiting_pulls_, {});
    for (const auto& [peer, pull] : waiting) {
      if (IsUp(peer)) RunPull(peer, pull);
    }
  }
  size_t waiting_pulls() const { return waiting_pulls_.size(); }

  // --- Transport
  void SetHandler(TransportHandler* handler) override { handler_ = handler; }
  absl::StatusOr<PeerId> Connect(const std::string&, const ConnectOptions&) override {
    return absl::UnimplementedError("a shard connects to nobody");
  }
  absl::Status Send(PeerId peer, const OutFrame& frame) override {
    if (!IsUp(peer)) return absl::UnavailableError("no such peer");
    if (absl::Status fits = CheckFrameBytes(frame); !fits.ok()) return fits;
    if (send_queue_full) return absl::ResourceExhaustedError("send queue full");
    ++frames_sent;
    if (!keep_frames) {
      if (frame.cookie != 0) cookies_.push_back({peer, frame.cookie});
      return absl::OkStatus();
    }
    sent.push_back({.peer = peer,
                    .type = frame.type,
                    .flags = frame.flags,
                    .request_id = frame.request_id,
                    .body = Bytes(frame.body.begin(), frame.body.end()),
                    .segments = {frame.payload.begin(), frame.payload.end()},
                    .payload = {},
                    .cookie = frame.cookie});
    return absl::OkStatus();
  }
  absl::Status Pull(PeerId peer, const PullRequest& request) override {
    if (!IsUp(peer)) return absl::UnavailableError("no such peer");
    longest_pull_bytes = std::max(longest_pull_bytes, request.bytes);
    Pulled pull{request.pull_id, request.offset, request.bytes, request.target[0]};
    if (pulls_wait) {
      waiting_pulls_.push_back({peer, pull});
    } else {
      RunPull(peer, pull);
    }
    return absl::OkStatus();
  }
  bool Cancel(PeerId peer, uint64_t request_id) override {
    ++cancels;
    if (!can_cancel) return false;
    const auto it = peers_.find(peer);
    if (it != peers_.end() && it->second.header.request_id == request_id) it->second.cancelled = true;
    return true;
  }
  void Fence(PeerId peer, const absl::Status& why) override {
    if (peers_.erase(peer) == 0) return;
    fenced.emplace_back(peer, why);
    handler_->OnPeerDown(peer, why);
  }
  const PeerPath* Path(PeerId peer) const override {
    const auto it = peers_.find(peer);
    return it == peers_.end() ? nullptr : &it->second.path;
  }
  bool Poll() override {
    if (!keep_frames) {
      const bool any = !cookies_.empty();
      for (const auto& [peer, cookie] : cookies_) handler_->OnSent(peer, cookie);
      cookies_.clear();
      return any;
    }
    if (!hold_sends) FlushSends();
    return false;
  }
  int WaitFd() const override { return -1; }

 private:
  struct Peer {
    PeerPath path{};
    const MemoryRegion* window = nullptr;
    HelloAck ack;
    std::vector<const MemoryRegion*> regions;
    FrameHeader header;  // Of the frame that is coming in.
    Bytes body;
    PayloadPlan plan;
    bool drained = false;
    bool cancelled = false;
  };
  struct Pulled {
    uint64_t id;
    uint64_t offset;
    uint32_t bytes;
    Segment target;
  };
  void RunPull(PeerId peer, const Pulled& pull) {
    const MemoryRegion* window = peers_.at(peer).window;
    PullResult result;
    if (window == nullptr || pull.offset > window->bytes() || pull.bytes > window->bytes() - pull.offset) {
      result.result = PartResult::kInvalid;
    } else {
      result.crc = CopyCrc32c(pull.target.data, window->data() + pull.offset, pull.bytes);
    }
    handler_->OnPulled(peer, pull.id, result);
  }

  TransportHandler* handler_ = nullptr;
  PeerId last_peer_ = 0;
  std::map<PeerId, Peer> peers_;
  std::vector<std::pair<PeerId, Pulled>> waiting_pulls_;
  std::vector<std::pair<PeerId, uint64_t>> cookies_;
};

}  // namespace cistern
