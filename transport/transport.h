#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/arena.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/part.h"
#include "transport/frame.h"
#include "transport/messages.h"

// How bytes move between a client and a shard: Send(frame), Pull(part, target), Fence(peer) (DESIGN §5).
// Implementations: LoopbackTransport (simulation), SocketTransport (`socket` over TCP and unix, `map` over
// unix), UcxTransport (fabric.h: Pull is a one-sided read of registered memory), JoinedTransport (sockets and
// a fabric as one).
namespace cistern {

using PeerId = uint32_t;  // One connection; never reused within a Transport. 0 is no peer.

enum class PathKind : uint8_t { kLoopback, kSocket, kMap, kUcx };
std::string_view PathKindName(PathKind kind);  // "loopback", "socket", "map", "ucx"

struct PeerPath {
  PathKind kind = PathKind::kSocket;
  std::string device;      // "lo", "eth0", "unix"
  std::string memory;      // "memfd, read-only map; frames in a shared ring", "host, copied by the kernel"
  std::string why;         // "same host", "--transport socket", "map refused: ..."
  bool one_sided = false;  // Pull works; otherwise bytes come as payload of replies.
};

struct OutFrame {
  FrameType type{};
  uint16_t flags = 0;
  uint64_t request_id = 0;
  ByteView body;  // Copied by Send.
  absl::Span<const ConstSegment>
      payload;          // The list is copied; the memory is borrowed until OnSent(cookie) or OnPeerDown.
  uint64_t cookie = 0;  // Not 0: call OnSent when the payload is no longer needed.
  bool flush = true;    // False: may wait for the next frame or Poll (RELEASE rides along).
};

struct InFrame {
  FrameHeader header;
  ByteView body;  // CRC checked; valid during the call.
  // CRC-32C of each payload piece that OnPayload named, of the bytes as they landed; valid during the call.
  absl::Span<const uint32_t> piece_crcs;
};

// Where a payload goes. One piece is one part; its segments add up to its bytes.
struct PayloadPlan {
  struct Piece {
    size_t bytes = 0;
    uint32_t first_segment = 0;  // Into `segments`.
    uint32_t segment_count = 0;  // 0: drained, nothing kept.
  };
  std::vector<Piece> pieces;  // Bytes add up to header.payload_bytes, else the peer is refused.
  std::vector<Segment> segments;
  void Clear() {
    pieces.clear();
    segments.clear();
  }
};

// A read of a peer's announced region into local memory.
struct PullRequest {
  uint64_t pull_id = 0;
  uint32_t region = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint64_t trailer_offset = 0;       // 0: no trailer wanted.
  absl::Span<const Segment> target;  // List copied if needed; memory must stay until OnPulled or a fence.
  uint64_t next_offset = 0;          // A hint: where in this region the next read begins. 0: not known.
};
struct PullResult {
  PartResult result = PartResult::kOk;  // kInvalid: outside the region. kPeerGone.
  uint32_t crc = 0;                     // Of the bytes as stored in the target.
  SlotTrailer trailer{};                // Read after the bytes, when asked for.
};

// All calls come from Transport's own Poll/Send/Pull/Fence on the owner's thread; none may destroy the
// transport.
class TransportHandler {
 public:
  virtual ~TransportHandler() = default;
  // Accepting side: check the ticket, fill the ack and the regions this peer may read (same order as
  // ack.regions). An error refuses the peer with that code and message; nothing else of it is ever handled.
  virtual absl::Status OnHello(PeerId peer, const Hello& hello, HelloAck& ack,
                               std::vector<const MemoryRegion*>& regions) = 0;
  // Connecting side: handshake done.
  virtual void OnPeerUp(PeerId peer, const HelloAck& ack) = 0;
  // Once per peer that was up, or that Connect returned. From here on no byte of it lands anywhere, payloads
  // it was sent are no longer read, and no OnSent or OnPulled follows. why: Unavailable, PermissionDenied
  // (refused), IsNoMemory, ...
  virtual void OnPeerDown(PeerId peer, const absl::Status& why) = 0;
  // A frame with payload begins: say where its pieces go. An error drains the payload, and OnFrame is not
  // called; the handler answers the request itself if it wants to.
  virtual absl::Status OnPayload(PeerId peer, const FrameHeader& header, ByteView body,
                                 PayloadPlan& plan) = 0;
  virtual void OnFrame(PeerId peer, const InFrame& frame) = 0;
  virtual void OnSent(PeerId peer, uint64_t cookie) = 0;
  virtual void OnPulled(PeerId peer, uint64_t pull_id, const PullResult& result) = 0;
};

struct ConnectOptions {
  Hello hello;                           // wants_map and window_bytes are filled in by the transport.
  const MemoryRegion* window = nullptr;  // Offered to the node on one-sided paths; must outlive the peer.
  bool allow_map = true;
  bool allow_ring = true;  // Frames of a mapped peer through shared memory, where the node offers it.
};

// Why a peer is given up whose handshake found no memory here: it says nothing about the peer.
inline absl::Status NoMemoryError() { return absl::ResourceExhaustedError(""); }
inline bool IsNoMemory(const absl::Status& why) {
  return absl::IsResourceExhausted(why) && why.message().empty();
}

// What throws for want of memory has not happened: no frame of a Send is queued, no Connect has a peer; Poll
// goes on where it was.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void SetHandler(TransportHandler* handler) = 0;  // Once, before anything else.

  // "tcp:HOST:PORT", "unix:NAME", "ucx:HOST:PORT" or "sim:NAME". Never blocks: OnPeerUp or OnPeerDown
  // follows, at most kHandshakeDeadline later. InvalidArgument for a malformed address.
  virtual absl::StatusOr<PeerId> Connect(const std::string& address, const ConnectOptions& options) = 0;

  // Queues a frame. Unavailable: no such peer any more. ResourceExhausted: kSendQueueBytesMax of bodies or
  // kSendQueueFramesMax frames wait; nothing was queued.
  virtual absl::Status Send(PeerId peer, const OutFrame& frame) = 0;

  // Starts a one-sided read; OnPulled follows, perhaps before this returns. Only where Path().one_sided.
  virtual absl::Status Pull(PeerId peer, const PullRequest& request) = 0;

  // Gives up one request whose reply may be arriving: when this returns true no more bytes of it land in its
  // pieces, and its OnFrame does not come. False: this path cannot cancel one request; Fence the peer.
  virtual bool Cancel(PeerId peer, uint64_t request_id) = 0;

  // Gives up one Pull: true when none of its bytes lands in the target any more; OnPulled does not follow
  // then. False: this path cannot give up one read (or bytes are on their way); Fence the peer.
  virtual bool CancelPull(PeerId /*peer*/, uint64_t /*pull_id*/) { return false; }

  // Cuts a peer off now: OnPeerDown has been called when this returns (not for a peer that is already gone).
  virtual void Fence(PeerId peer, const absl::Status& why) = 0;

  virtual const PeerPath* Path(PeerId peer) const = 0;  // Null when gone.
  // The peer's memory as this process sees it, in the order of HelloAck::regions; empty where nothing is
  // mapped. For measuring the limit of the path; reads of parts go through Pull.
  virtual std::vector<ConstSegment> MappedRegions(PeerId) const { return {}; }
  // What the transport itself refused and saw, by name ("version_refused_total", "bad_frames_total", ...).
  virtual std::map<std::string, uint64_t> counters() const { return {}; }

  // Memory that OnHello will offer, told before anybody is served, or that reads should land in directly, so
  // that a device that has to register it does so once and early. grain: what it is handed out in; no
  // registration ends inside. It outlives RemoveMemory, which takes the same `data`, and no read into it may
  // be under way then.
  virtual absl::Status AddMemory(std::byte* /*data*/, size_t /*bytes*/, size_t /*grain*/) {
    return absl::OkStatus();
  }
  virtual void RemoveMemory(const std::byte* /*data*/) {}

  // Moves everything that can move; true if anything did. Never blocks.
  virtual bool Poll() = 0;
  // What the last Poll left waits for a peer to take bytes, or for so many to come that a wake-up is cheap
  // beside them: sleep on WaitFd rather than spin, which would only take the core, and the connection's lock,
  // from the peer.
  virtual bool AwaitsBulk() const { return false; }
  // Readable when Poll would find work, except while SetSpinning(true); level-triggered. -1 in the
  // simulation.
  virtual int WaitFd() const = 0;
  // True: the owner calls Poll again and again, and peers need not wake it. False, as it begins: it may sleep
  // on WaitFd. Cheap enough to be said around each sleep.
  virtual void SetSpinning(bool) {}
  // Called when Poll found nothing and before sleeping on WaitFd, which keeps its promise only then. False:
  // something came meanwhile; Poll again.
  virtual bool PrepareWait() { return true; }
};

// The region id under which the accepting side pulls from a peer's put window.
inline constexpr uint32_t kPutWindowRegion = 0;
// The region of an ack that is a ring for frames (SharedRing) and no memory of parts.
inline constexpr uint32_t kRingRegion = 0xffffffff;
inline constexpr Nanos kHandshakeDeadline = 2 * kSecond;
inline constexpr size_t kSendQueueFramesMax = 1024;
inline constexpr size_t kSendQueueBytesMax = 32u << 20;
inline constexpr size_t kPeersMax = 4096;

}  // namespace cistern
