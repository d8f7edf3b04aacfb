#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport/loopback_network.h"
#include "transport/loopback_transport.h"

// What LoopbackNetwork and LoopbackTransport share and nobody else sees.
namespace cistern {

// A frame under way: encoded header and body, and the sender's borrowed payload, read chunk by chunk when
// each is due.
struct LoopbackNetwork::Frame {
  Bytes wire;
  uint64_t cookie = 0;
  uint64_t payload_bytes = 0;
  std::vector<ConstSegment> payload;
  bool flip_payload = false;
  bool counted = true;  // Still counts against the sender's queue.
};

struct LoopbackNetwork::PullOp {
  uint64_t pull_id = 0;
  uint64_t offset = 0;
  uint64_t trailer_offset = 0;
  std::vector<Segment> target;
  std::shared_ptr<MemoryRegion> memory;  // Shared by the peer and its pulls: a pull may outlast the peer.
  Bytes staged;
  bool flip = false;
  PullResult result;
};

struct LoopbackNetwork::Event {
  enum class Kind : uint8_t { kFrame, kChunk, kSent, kReset, kHandshakeTimeout, kPullHalf, kPullEnd };
  Nanos at = 0;
  uint64_t sequence = 0;
  Kind kind{};
  uint32_t connection = 0;
  int side = 0;                  // The end it is for.
  std::shared_ptr<Frame> frame;  // Shared by the frame's events.
  std::shared_ptr<PullOp> pull;  // Shared by the pull's two events.
  uint32_t chunk = 0;
  Bytes bytes;         // Of the chunk.
  uint32_t heals = 0;  // Of its direction, when it was put in order.
  uint64_t cookie = 0;
  absl::Status why;
};

struct LoopbackNetwork::Later {
  bool operator()(const std::unique_ptr<Event>& a, const std::unique_ptr<Event>& b) const {
    return a->at != b->at ? a->at > b->at : a->sequence > b->sequence;
  }
};

struct LoopbackNetwork::Connection {
  struct End {
    LoopbackTransport* endpoint = nullptr;  // Null: not accepted yet, or gone.
    PeerId peer = 0;
    std::string host;
    bool open = true;
  };
  struct Direction {  // From end i to the other one.
    Nanos last = 0;   // Nothing sent later arrives before this.
    size_t frames = 0;
    size_t body_bytes = 0;
    std::deque<std::unique_ptr<Event>> parked;  // Behind a cut, in order.
    uint32_t heals = 0;
    Nanos settled = 0;  // When the last of what was parked until the last heal arrives.
  };
  uint32_t id = 0;
  std::string name;  // What the connecting end asked for.
  End ends[2];
  Direction directions[2];
  std::shared_ptr<MemoryRegion> window;  // Shared with the accepting end's peer.
  std::vector<std::shared_ptr<MemoryRegion>>
      regions;  // As the accepting end offered them, in the ack's order.
};

// One connection as its own end sees it.
struct LoopbackTransport::Peer {
  enum class State : uint8_t { kAwaitHello, kAwaitAck, kUp };
  struct Deferred {
    FrameType type{};
    uint16_t flags = 0;
    uint64_t request_id = 0;
    Bytes body;
    std::vector<ConstSegment> payload;
    uint64_t cookie = 0;
  };
  // A payload that is arriving.
  struct Incoming {
    bool active = false;
    bool dropped = false;  // Drained: refused by the handler or cancelled.
    FrameHeader header;
    PayloadPlan plan;
    size_t piece = 0;
    size_t piece_done = 0;
    std::vector<uint32_t> crcs;
  };
  PeerId id = 0;
  int side = 0;
  uint32_t connection = 0;
  State state = State::kAwaitHello;
  PeerPath path;
  std::unordered_map<uint32_t, std::shared_ptr<MemoryRegion>> regions;  // Shared with pulls under way.
  std::unordered_set<uint64_t> cancelled;
  std::vector<Deferred> deferred;
  Incoming incoming;
};

}  // namespace cistern
