#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "transport/socket_impl.h"

// Peers whose frames go through a ring of shared memory: how they come to it, and what is left for their
// socket, which is bells (one byte that says "look into the ring") and the end of the peer.
namespace cistern {
namespace {

constexpr std::byte kBell{'!'};
constexpr size_t kBellsPerRoundMax = 4096;  // Read at once; a peer that rings more is heard again later.

bool AreBells(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kBell; });
}

absl::Status NotABell() {
  return absl::InvalidArgumentError("bytes on the socket of a peer whose frames go through a ring");
}

}  // namespace

// The node's side: a ring comes last in the ack of a peer that maps our memory.
void SocketTransport::Impl::OfferRing(SocketPeer& peer, HelloAck& ack, std::vector<int>& fds) {
  if (peer.version < kRingWireVersion || !options_.offer_rings || fds.empty()) return;
  absl::Status status;
  if (rings_ >= kRingPeersMax || fds.size() >= kRegionsPerPeerMax) {
    status = absl::ResourceExhaustedError(absl::StrCat(kRingPeersMax, " rings are in use"));
  } else {
    auto ring = SharedRing::Create();
    status = ring.status();
    if (ring.ok()) peer.ring = *std::move(ring);
  }
  if (!status.ok()) {
    RefuseRing(peer, status);
    return;
  }
  ++rings_;
  ack.regions.push_back({kRingRegion, peer.ring->bytes()});
  fds.push_back(peer.ring->fd());
}

// The client's side: takes the ring that was offered out of what came with the ack.
absl::StatusOr<std::unique_ptr<SharedRing>> SocketTransport::Impl::TakeRing(const SocketPeer& peer,
                                                                            HelloAck& ack,
                                                                            std::vector<UniqueFd>& fds) {
  const uint64_t bytes = ack.regions.back().bytes;
  ack.regions.pop_back();
  if (fds.size() != ack.regions.size() + 1) {
    return absl::InvalidArgumentError("no descriptor came for the ring");
  }
  UniqueFd fd = std::move(fds.back());
  fds.pop_back();
  if (!peer.connect.allow_ring) return absl::UnavailableError("the client wants none");
  return SharedRing::Join(std::move(fd), bytes);
}

// The client's word on a ring that was offered; frames stay on the socket when there is none after all.
void SocketTransport::Impl::AnswerRing(SocketPeer& peer, absl::StatusOr<std::unique_ptr<SharedRing>> ring) {
  OutFrame frame;
  frame.type = FrameType::kRing;
  if (ring.ok()) frame.flags = kFlagUseRing;
  CISTERN_CHECK(peer.writer.Push(frame, peer.version).ok());
  Flush(peer);
  if (!ring.ok()) {
    RefuseRing(peer, ring.status());
    return;
  }
  if (!peer.writer.empty()) {  // Into an empty socket: its buffer has no room for one header.
    Doom(peer, absl::UnavailableError("the socket takes no frame"));
    return;
  }
  peer.ring = *std::move(ring);
  ++rings_;
  EnterRing(peer);
}

// The node's side: the first frame after an ack that offered a ring.
void SocketTransport::Impl::OnRingWord(SocketPeer& peer) {
  const FrameHeader header = peer.reader.header();
  peer.ring_offered = false;
  if (header.type == FrameType::kRing && (header.flags & kFlagUseRing) != 0) {
    EnterRing(peer);
    if (peer.state == State::kDown) return;
  } else {
    peer.ring.reset();
    --rings_;
    peer.reader.ReadAhead();
    RefuseRing(peer, absl::UnavailableError("the client wants none"));
  }
  if (!peer.writer.empty()) Flush(peer);  // What had to wait for this.
  if (header.type != FrameType::kRing) DeliverFrame(peer);
}

void SocketTransport::Impl::EnterRing(SocketPeer& peer) {
  const bool bells = AreBells(peer.reader.UseRing(peer.ring.get()));
  peer.writer.UseRing(peer.ring.get());
  peer.in_ring = true;
  peer.path.memory = "memfd, read-only map; frames in a shared ring";
  ring_ids_.push_back(peer.id);
  peer.ring->SetAsleep(!spinning_);
  if (!bells) CloseBad(peer, NotABell());
}

void SocketTransport::Impl::RefuseRing(SocketPeer& peer, const absl::Status& why) {
  ++counters_.ring_refused;
  if (!peer.path.one_sided) return;
  peer.path.memory =
      absl::StrCat("memfd, read-only map; frames over the socket (no ring: ", why.message(), ")");
}

bool SocketTransport::Impl::ServeRings() {
  bool moved = false;
  for (size_t i = 0; i < ring_ids_.size(); ++i) {  // Callbacks may take any of them away: at worst one waits.
    SocketPeer* peer = Find(ring_ids_[i]);
    if (peer != nullptr && !peer->doomed) moved |= ServeRing(*peer);
  }
  return moved;
}

bool SocketTransport::Impl::ServeRing(SocketPeer& peer) {
  SharedRing& ring = *peer.ring;
  if (ring.SeesWakeTaken()) {
    if (!HearBells(peer)) return true;
    if (!spinning_) ring.SetAsleep(true);
  }
  bool moved = false;
  if (peer.wants_write && ring.HasRoom()) {
    const uint64_t before = peer.writer.written_bytes();
    Flush(peer);
    moved = peer.writer.written_bytes() != before;
  }
  if (peer.doomed || !ring.Readable()) return moved;
  moved |= ServeRead(peer);
  if (peer.state != State::kDown && ring.TakeWriterWake()) RingBell(peer);
  return moved;
}

// False: the peer is down.
bool SocketTransport::Impl::HearBells(SocketPeer& peer) {
  const ssize_t got = recv(peer.fd.get(), scratch_->bytes.data(), kBellsPerRoundMax, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got > 0) {
    if (AreBells(ByteView(scratch_->bytes.data(), static_cast<size_t>(got)))) return true;
    CloseBad(peer, NotABell());
    return false;
  }
  const absl::Status why = got == 0 ? absl::UnavailableError("the peer closed the connection")
                                    : absl::UnavailableError(absl::StrCat("receive: ", std::strerror(errno)));
  // Its last words count, as they do on a socket; but no more than it can have written before.
  size_t taken = 0;
  while (peer.state == State::kUp && !peer.doomed && taken < peer.ring->lane_bytes() &&
         peer.ring->Readable()) {
    ServeRead(peer);
    if (peer.reader.burst_bytes() == 0) break;
    taken += peer.reader.burst_bytes();
  }
  if (peer.state != State::kDown) Down(peer, why);
  return false;
}

// A full socket needs no other bell: those in it are not yet heard. A broken one shows its end by itself.
void SocketTransport::Impl::RingBell(const SocketPeer& peer) {
  (void)!send(peer.fd.get(), &kBell, sizeof(kBell), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Wakes the reader of what was written, and asks to be woken when something had to stay.
void SocketTransport::Impl::AfterRingWrite(SocketPeer& peer, FrameWriter::Outcome outcome) {
  if (peer.ring->TakeReaderWake()) RingBell(peer);
  if (outcome == FrameWriter::Outcome::kBroken) ++counters_.bad_frames;
  if (outcome != FrameWriter::Outcome::kBlocked && outcome != FrameWriter::Outcome::kMore) return;
  peer.ring->AwaitRoom();
  if (peer.ring->HasRoom()) Wake();  // Perhaps it came before the peer could see that we wait.
}

void SocketTransport::Impl::SetSpinning(bool spinning) {
  if (spinning_ == spinning) return;
  spinning_ = spinning;
  for (const PeerId id : ring_ids_) {
    SocketPeer* peer = Find(id);
    if (spinning && peer->ring->SeesWakeTaken()) direct_rounds_ = kDirectRoundsMax;  // Hear the bell soon.
    peer->ring->SetAsleep(!spinning);
  }
  if (!sent_.empty() || !doomed_.empty()) Wake();
  WakeForRings();
}

// A ring shows nothing on WaitFd by itself: what is in it already, or has room already, is told here.
void SocketTransport::Impl::WakeForRings() {
  if (spinning_) return;
  for (const PeerId id : ring_ids_) {
    const SocketPeer* peer = Find(id);
    if (peer->ring->Readable() || (peer->wants_write && peer->ring->HasRoom())) return Wake();
  }
}

}  // namespace cistern
