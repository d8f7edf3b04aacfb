#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "transport/shared_ring.h"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace cistern {

inline constexpr size_t kReadBurstBytesMax = 4u << 20;  // One peer's share of one round.
inline constexpr int kReceivesPerRoundMax = 64;
// Payloads come through a buffer of this size that stays in the core's cache, and go on to their place in the
// same pass that checksums them: the kernel's copy then writes no cold memory, and ours streams. Unix socket,
// Zen 3, 16 parts of 1 MiB: 6.9 to 7.4 GB/s with 64 to 256 KiB, where a receive in place made 6.8 and one
// with its checksum behind it 5.2.
inline constexpr size_t kReceiveScratchBytes = 128u << 10;
inline constexpr size_t kBodyKeptBytesMax = 1u << 20;  // A larger body buffer is given back after its frame.
inline constexpr size_t kReceiveHeadBytes = 4096;      // At most so much payload is copied once more.

// Takes frames off one connection. Pull style: the owner asks for the next event, acts, asks again; no
// callback runs while a FrameReader is on the stack. Headers and small bodies come through a small buffer,
// large bodies straight to where they belong, payloads through `scratch` with one pass that copies and
// computes the piece's CRC-32C. Where the frame before had a payload, the next one's head comes through
// `scratch` too, in one receive with its payload (one part of 64 KiB over TCP, Zen 5: 22.6 us before,
// 18.3 us with it).
//
// Owner: one SocketPeer. Thread: the transport's. Memory follows bytes that came, never bytes announced.
class FrameReader {
 public:
  enum class Event : uint8_t {
    kNothing,  // Nothing more in this round.
    kHeader,   // header() passed its checks; nothing was allocated for it.
    kPayload,  // body() is whole; a payload follows: fill plan() and call StartPayload, or DrainPayload.
    kFrame,    // All of it is here.
    kClosed,   // The peer ended the stream.
    kBad,      // error(): the stream cannot be read on.
  };
  // scratch: what payloads come through; shared by the readers of one thread; at a multiple of
  // kFrameAlignBytes, and larger than that.
  explicit FrameReader(absl::Span<std::byte> scratch) : scratch_(scratch) {}

  // A new round: the socket may have bytes again.
  void StartRound() {
    dry_ = false;
    burst_bytes_ = 0;
    receives_ = 0;
  }
  // Received since StartRound.
  size_t burst_bytes() const { return burst_bytes_; }
  Event Next(int fd);

  const FrameHeader& header() const { return header_; }
  ByteView body() const { return body_; }
  PayloadPlan& plan() { return plan_; }
  absl::Span<const uint32_t> piece_crcs() const { return piece_crcs_; }
  const absl::Status& error() const { return error_; }

  // InvalidArgument when the plan's pieces or segments do not add up.
  absl::Status StartPayload();
  void DrainPayload();
  // True while the payload of this request's frame is arriving; from then on it is drained.
  bool DrainIfArriving(uint64_t request_id);
  // Of the payload that is arriving, what has not come yet.
  uint64_t due_bytes() const { return state_ == State::kPayload ? payload_left_ : 0; }
  bool draining() const { return draining_; }
  uint64_t drained_bytes() const { return drained_bytes_; }

  // Handshake on a unix socket: take descriptors that come along. kBad when more than kRegionsPerPeerMax
  // come.
  void ExpectFds(bool on) { expect_fds_ = on; }
  std::vector<UniqueFd> TakeFds() { return std::exchange(fds_, {}); }
  // After the handshake, where no ring can follow: where payloads come, a receive takes a frame's head and
  // payload at once.
  void ReadAhead() { read_ahead_ = true; }
  // Between two frames, never after ReadAhead: the next one comes through `ring` (borrowed), and `fd` is read
  // no more. Returns what had come behind the frame; it is forgotten.
  ByteView UseRing(SharedRing* ring);

 private:
  enum class State : uint8_t { kHeader, kBody, kLargeBody, kPayloadDue, kPayload, kFrameDone };

  size_t PaddedBodyBytes() const { return size_t{header_.body_bytes} + header_.pad_bytes; }
  // False: no byte came; `event` tells why.
  bool FillHead(int fd, size_t need, Event& event);
  bool ReceiveAhead(int fd, Event& event);
  bool ReceiveLargeBody(int fd, Event& event);
  int64_t Receive(int fd, std::byte* to, size_t bytes);
  bool ReceivePayload(int fd, Event& event);
  bool Account(int64_t got, size_t asked, Event& event);
  bool TakeControl(const void* message);
  // Where a receive into scratch_ begins: as far behind a multiple of kFrameAlignBytes as the stream itself
  // is, as its bytes lie in the sender's kernel, too. TCP cuts anywhere (65,483 bytes over loopback), and Zen
  // 3 and 4 copy at a seventh of their rate to what lies 1 to 15 bytes behind the source within its page
  // (receive_bench, Zen 4: 2.9 instead of 20 GB/s): each receive until the next cut did, and the socket
  // filled up behind.
  absl::Span<std::byte> Landing() { return scratch_.subspan(received_ % kFrameAlignBytes); }
  Event DecodeHeader();
  Event FinishBody();
  void Land(const std::byte* from, size_t bytes);
  // Up to so many of the bytes that are received and not yet used; valid until the next call.
  ByteView TakeReceived(size_t bytes);
  bool RoundIsLong() const { return burst_bytes_ >= kReadBurstBytesMax || receives_ >= kReceivesPerRoundMax; }
  Event Bad(absl::Status why);

  absl::Span<std::byte> scratch_;
  SharedRing* ring_ = nullptr;
  State state_ = State::kHeader;
  bool dry_ = false;
  bool draining_ = false;
  bool expect_fds_ = false;
  bool read_ahead_ = false;
  bool payload_before_ = false;  // With the frame before: the next one most likely has one too.
  size_t burst_bytes_ = 0;
  int receives_ = 0;
  uint64_t received_ = 0;  // Since the connection began.

  FrameHeader header_;
  ByteView body_;
  size_t head_at_ = 0;  // Bytes [head_at_, head_end_) of head_ are received and not yet used.
  size_t head_end_ = 0;
  // Bytes [ahead_at_, ahead_end_) of scratch_ come behind those in head_. All are used before Next says
  // kNothing: the scratch is not ours alone. When it throws instead, for want of memory, or the owner stops
  // asking for that, nobody else reads before this one has gone on.
  size_t ahead_at_ = 0;
  size_t ahead_end_ = 0;
  Bytes large_body_;  // Its size is a high-water mark.
  size_t large_body_got_ = 0;

  // The plan as a flat list of where bytes go, in order.
  struct Target {
    std::byte* data = nullptr;  // Null: drained.
    size_t bytes = 0;
    uint32_t piece = 0;
  };
  PayloadPlan plan_;
  std::vector<Target> targets_;
  std::vector<uint32_t> piece_crcs_;
  uint64_t payload_left_ = 0;
  size_t target_ = 0;     // The first target that is not full,
  size_t target_at_ = 0;  // and how much of it is.
  uint64_t drained_bytes_ = 0;

  std::vector<UniqueFd> fds_;
  absl::Status error_;
  alignas(kFrameAlignBytes) std::array<std::byte, kReceiveHeadBytes> head_;
};

}  // namespace cistern
