#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "core/clock.h"
#include "transport/frame_reader.h"
#include "transport/frame_writer.h"
#include "transport/peer_regions.h"
#include "transport/shared_ring.h"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace cistern {

// One connection of a SocketTransport and where it stands. Plain state; SocketTransport::Impl acts on it.
// Owner: Impl, which keeps it until no callback or loop can still point to it. Thread: the transport's.
struct SocketPeer {
  enum class State : uint8_t {
    kConnecting,  // Ours; connect has not ended.
    kAwaitHello,  // Accepted; nothing of it is handled yet.
    kAwaitAck,    // Ours; HELLO is sent.
    kUp,
    kRefusing,  // Accepted and refused; stays until the refusal is read or the deadline passes.
    kDown,      // Closed; only kept for those who still point here.
  };

  SocketPeer(PeerId peer_id, UniqueFd socket, bool is_accepted, bool over_unix, absl::Span<std::byte> scratch)
      : id(peer_id), fd(std::move(socket)), accepted(is_accepted), is_unix(over_unix), reader(scratch) {}

  bool IsUnauthenticated() const { return state == State::kAwaitHello || state == State::kRefusing; }
  // True when the owner of the transport has heard of this peer and is owed OnPeerDown.
  bool IsKnown() const {
    return state == State::kUp || state == State::kConnecting || state == State::kAwaitAck;
  }

  const PeerId id;
  UniqueFd fd;
  const bool accepted;
  const bool is_unix;
  State state = State::kConnecting;
  bool doomed = false;        // OnPeerDown is due at the next Poll, with `doom`.
  bool wants_write = false;   // EPOLLOUT is armed.
  bool unflushed = false;     // In Impl's list of those with frames that may wait.
  bool ring_offered = false;  // With the ack; frames wait until the client has said whether it takes it.
  bool in_stream = false;     // Sleeping, we are woken for a step of it (SO_RCVLOWAT), not for each byte.
  bool in_ring = false;       // Frames go through `ring`, the socket has bells and the end.
  uint8_t version = kWireVersionMax;
  Nanos deadline = kNever;  // Of the handshake.
  Nanos last_progress = 0;  // When the socket last took a byte; counts while wants_write.
  uint64_t written_at_progress = 0;
  absl::Status doom;
  ConnectOptions connect;  // Ours only.
  PeerPath path;
  std::unique_ptr<SharedRing> ring;  // Outlives reader and writer.
  FrameReader reader;
  FrameWriter writer;
  PeerRegions regions;
  std::unordered_set<uint64_t> cancelled;  // Requests whose answer is not wanted and has not begun.
};

}  // namespace cistern
