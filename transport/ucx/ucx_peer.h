#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_messages.h"

// State of a UcxTransport: its peers, and the operations that UCX has pointers to. Plain; the transport acts
// on it.
namespace cistern {

class UcxTransport;
struct UcxPeer;

// A frame on its way out, with its payload. Ends when nothing of it is in flight.
struct Outgoing {
  PeerId peer = 0;  // May be gone.
  std::array<std::byte, kAmHeaderBytes + kFrameHeaderBytes> header;
  Bytes body;                          // And what a frame of the handshake announces.
  size_t body_bytes = 0;               // Without that.
  std::vector<ConstSegment> payload;   // Without empty ones.
  size_t segment = 0, segment_at = 0;  // What of the payload comes next.
  bool frame_posted = false;
  uint32_t in_flight = 0;
  uint64_t cookie = 0;
  bool IsPosted() const { return frame_posted && segment == payload.size(); }
};

// One active message given to UCX.
struct SendOp {
  UcxTransport* transport = nullptr;
  Outgoing* outgoing = nullptr;
  bool chunk = false;
  std::array<std::byte, kAmHeaderBytes> header;  // Of a chunk.
};

// One active message that came before its turn, or that the handler has to hear of.
struct Inbound {
  AmKind kind{};
  std::array<std::byte, kFrameHeaderBytes> frame;
  Bytes data;
};

// A peer's registered memory, as we may read it.
struct RemoteChunk {
  uint64_t offset = 0;  // In the region.
  uint64_t address = 0;
  uint64_t bytes = 0;
  RkeyHandle rkey;
};
struct RemoteRegion {
  uint32_t id = 0;
  uint64_t bytes = 0;
  std::vector<RemoteChunk> chunks;
  // The chunk that `offset` lies in.
  const RemoteChunk& At(uint64_t offset) const;
};

struct PullOp;
// One get: a contiguous piece of a pull, into its target or into a bounce buffer.
struct Fragment {
  PullOp* pull = nullptr;
  uint64_t offset = 0;  // In the region.
  size_t bytes = 0;
  std::byte* to = nullptr;
  bool direct = false;  // `to` is the target itself.
  bool posted = false, done = false;
};
struct PullOp {
  UcxTransport* transport = nullptr;
  UcxPeer* peer = nullptr;  // Null: the peer went first, or the pull was given up; nobody is told.
  uint64_t pull_id = 0;
  const RemoteRegion* region = nullptr;
  uint64_t trailer_offset = 0;
  std::vector<Segment> target;
  size_t segment = 0, segment_at = 0;  // Where the next landed byte goes.
  std::vector<Fragment> fragments;
  size_t next_post = 0, next_land = 0;
  uint32_t in_flight = 0;
  uint32_t direct_in_flight = 0;
  bool failed = false;
  bool listed = false;  // In the transport's list of those to be looked at.
  std::byte* trailer = nullptr;
  bool trailer_posted = false, trailer_done = false;
  uint32_t crc = 0;
};

// One connection of a UcxTransport and where it stands.
// Owner: the transport, which keeps it until no callback or loop can still point to it. Thread: the
// transport's.
struct UcxPeer {
  enum class State : uint8_t {
    kAwaitHello,  // Accepted; nothing of it is handled yet.
    kAwaitAck,    // Ours; HELLO is sent or waits for the connection.
    kUp,
    kRefusing,  // Accepted and refused; stays until the refusal is read or the deadline passes.
    kDown,
  };
  UcxPeer(UcxTransport* owner, PeerId peer_id, bool is_accepted)
      : transport(owner), id(peer_id), accepted(is_accepted) {}
  bool IsUnauthenticated() const { return state == State::kAwaitHello || state == State::kRefusing; }
  bool IsKnown() const { return state == State::kUp || state == State::kAwaitAck; }

  UcxTransport* const transport;
  const PeerId id;
  const bool accepted;
  State state = State::kAwaitAck;
  ucp_ep_h ep = nullptr;
  bool doomed = false;  // OnPeerDown is due at the next Poll, with `doom`.
  absl::Status doom;
  uint8_t version = kWireVersionMax;
  Nanos deadline = kNever;  // Of the handshake.
  ConnectOptions connect;   // Ours only.
  PeerPath path;
  std::string remote;  // Address, where known.

  uint64_t send_sequence = 0;
  std::deque<Outgoing*> queue;  // Not wholly posted.
  size_t queued_frames = 0, queued_bytes = 0;
  uint32_t chunks_in_flight = 0;
  uint32_t sends_in_flight = 0;
  bool unposted = false;  // In the transport's list of those with something to post.

  uint64_t receive_sequence = 0;  // Of inbound.front().
  std::deque<Inbound*> inbound;   // Null: not here yet.
  size_t inbound_bytes = 0;       // Copied, not yet handled.
  bool readable = false;          // In the transport's list of those to deliver.
  struct {
    bool active = false;
    bool dropped = false;  // Drained: refused by the handler, or cancelled.
    FrameHeader header;
    Bytes body;
    PayloadPlan plan;
    uint64_t received = 0;
    size_t piece = 0, piece_done = 0;
    size_t segment = 0, segment_done = 0;  // In the piece.
    std::vector<uint32_t> crcs;
    bool IsWhole() const { return received == header.payload_bytes; }
  } incoming;
  std::unordered_set<uint64_t> cancelled;

  std::vector<RemoteRegion> regions;  // Few; not changed while up, so pulls may point to them.
  std::vector<PullOp*> pulls;
};

}  // namespace cistern
