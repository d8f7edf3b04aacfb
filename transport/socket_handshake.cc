#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/chain.h"
#include "core/check.h"
#include "core/error_of.h"
#include "transport/socket_impl.h"

// How a connection becomes a peer: HELLO within the deadline, versions and key algorithm that agree, the
// handler's word on the ticket, and on unix sockets descriptors of the memory that either side may map.
namespace cistern {
namespace {

constexpr int kAcceptsPerPoll = 16;
// Regions, names and room for what later versions add.
constexpr uint32_t kAckFrameBytesMax = 4096;

// A unix peer has to be this user or root: whoever else shares the host gets no memory of ours, and no ticket
// of ours.
bool IsTrustedUid(int64_t uid) { return uid == 0 || uid == static_cast<int64_t>(geteuid()); }

}  // namespace

bool SocketTransport::Impl::Accept(size_t listener) {
  bool any = false;
  for (int i = 0; i < kAcceptsPerPoll && AcceptOne(listeners_[listener]); ++i) any = true;
  return any;
}

// Closes the oldest peer without a HELLO, so that connections that say nothing shut nobody out; those that
// have sent something which is not read yet get the turn of Poll that reads it.
bool SocketTransport::Impl::MakeRoomForStranger() {
  for (const PeerId id : strangers_) {
    SocketPeer& peer = *Find(id);
    int unread = 0;
    if (ioctl(peer.fd.get(), FIONREAD, &unread) == 0 && unread > 0) continue;
    ++counters_.strangers_dropped;
    Down(peer, absl::UnavailableError("others wait and it says no HELLO"));
    return true;
  }
  return false;
}

// False when nobody waits.
bool SocketTransport::Impl::AcceptOne(Listener& listener) {
  UniqueFd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    ++counters_.accept_errors;
    if (errno != EMFILE && errno != ENFILE) return errno == ECONNABORTED || errno == EINTR;
    // Without this the listener would stay readable for ever, and the caller waiting.
    spare_.Reset();
    UniqueFd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)).Reset();
    spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    return false;
  }
  ++counters_.accepted;
  if (listener.is_unix && !IsTrustedUid(PeerUid(fd.get()))) {
    ++counters_.uid_refused;
    return true;
  }
  if (strangers_.size() >= kUnauthenticatedPeersMax && !MakeRoomForStranger()) {
    ++counters_.peers_refused;
    return true;
  }
  absl::StatusOr<SocketPeer*> peer = Adopt(std::move(fd), true, listener.is_unix);
  if (!peer.ok()) {
    ++counters_.peers_refused;
    return true;
  }
  (*peer)->state = State::kAwaitHello;
  strangers_.push_back((*peer)->id);
  return true;
}

void SocketTransport::Impl::ConnectDone(SocketPeer& peer) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(peer.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) {
    Down(peer, ErrorOf(absl::StatusCode::kUnavailable, "connect: ", std::strerror(error)));
    return;
  }
  // Anyone may bind an abstract name that is free: look who it is before the ticket goes there.
  if (peer.is_unix && !IsTrustedUid(PeerUid(peer.fd.get()))) {
    ++counters_.uid_refused;
    Down(peer, absl::PermissionDeniedError("the unix socket belongs to another user"));
    return;
  }
  peer.path.device = DeviceOf(peer.fd.get());
  SendHello(peer);
}

// Without memory the next Poll does it.
void SocketTransport::Impl::SendHello(SocketPeer& peer) {
  Hello& hello = peer.connect.hello;
  hello.wants_map = peer.is_unix && peer.connect.allow_map;
  const bool window = hello.wants_map && peer.connect.window != nullptr;
  hello.window_bytes = window ? peer.connect.window->bytes() : 0;
  body_.clear();
  hello.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kHello;
  frame.body = body_;
  if (window) peer.writer.AttachFds({peer.connect.window->fd()});
  CISTERN_CHECK(peer.writer.Push(frame, kWireVersionMin).ok());
  peer.state = State::kAwaitAck;
  Flush(peer);
}

// What may come as a frame in this state, told by its header alone.
absl::Status SocketTransport::Impl::CheckHeader(const SocketPeer& peer, const FrameHeader& header) const {
  switch (peer.state) {
    case State::kAwaitHello:
      if (header.type != FrameType::kHello)
        return ErrorOf(absl::StatusCode::kPermissionDenied, "a frame before HELLO");
      if (header.body_bytes > kHelloFrameBytesMax)
        return ErrorOf(absl::StatusCode::kInvalidArgument, "HELLO too long");
      return absl::OkStatus();
    case State::kAwaitAck:
      if (header.type != FrameType::kHelloAck && header.type != FrameType::kRefused) {
        return ErrorOf(absl::StatusCode::kInvalidArgument, "answer to HELLO is neither ack nor refusal");
      }
      if (header.body_bytes > kAckFrameBytesMax)
        return ErrorOf(absl::StatusCode::kInvalidArgument, "answer to HELLO too long");
      return absl::OkStatus();
    default:
      if (header.type == FrameType::kHello || header.type == FrameType::kHelloAck ||
          (header.type == FrameType::kRefused && peer.accepted)) {
        return ErrorOf(absl::StatusCode::kInvalidArgument, "a frame of the handshake after it");
      }
      if (header.type == FrameType::kRing && (!peer.ring_offered || header.body_bytes > 0)) {
        return ErrorOf(absl::StatusCode::kInvalidArgument, "an answer to a ring that was not offered");
      }
      if (header.version != peer.version)
        return ErrorOf(absl::StatusCode::kInvalidArgument, "not the version agreed on");
      return absl::OkStatus();
  }
}

// Maps the put window that came with HELLO. Not OK only when descriptors came that HELLO does not announce; a
// window that cannot be mapped leaves a peer without a map.
absl::Status SocketTransport::Impl::TakeWindow(SocketPeer& peer, Hello& hello) {
  std::vector<UniqueFd> fds = peer.reader.TakeFds();
  hello.wants_map = hello.wants_map && peer.is_unix;
  if (!hello.wants_map) hello.window_bytes = 0;
  if (fds.size() > (hello.window_bytes > 0 ? 1u : 0u)) {
    ++counters_.bad_frames;
    return absl::InvalidArgumentError("descriptors came that HELLO does not announce");
  }
  if (hello.window_bytes == 0) return absl::OkStatus();
  const absl::Status mapped = peer.regions.Map({{kPutWindowRegion, hello.window_bytes}}, std::move(fds));
  if (!mapped.ok()) {
    RefuseMap(peer, mapped);
    hello.wants_map = false;
    hello.window_bytes = 0;
  }
  return absl::OkStatus();
}

void SocketTransport::Impl::RefuseMap(SocketPeer& peer, const absl::Status& why) {
  ++counters_.map_refused;
  peer.path.why = absl::StrCat("map refused: ", why.message());
}

void SocketTransport::Impl::OnHelloFrame(SocketPeer& peer) {
  peer.reader.ExpectFds(false);
  Hello hello;
  absl::Status status = CheckHello(peer.reader.header(), peer.reader.body(), hello, counters_);
  if (status.ok()) status = TakeWindow(peer, hello);
  HelloAck ack;
  std::vector<const MemoryRegion*> regions;
  if (status.ok()) {
    status = handler_->OnHello(peer.id, hello, ack, regions);
    if (peer.state == State::kDown) return;
    if (!status.ok()) ++counters_.hello_refused;
  }
  peer.reader.TakeFds().clear();  // What a refused HELLO brought along.
  if (!status.ok()) {
    Refuse(peer, status);
    return;
  }
  peer.state = State::kUp;
  peer.deadline = kNever;
  std::erase(strangers_, peer.id);
  peer.version = static_cast<uint8_t>(std::min<uint16_t>(kWireVersionMax, hello.version_max));
  if (!hello.wants_map) {
    ack.regions.clear();
    regions.clear();
  }
  SendAck(peer, ack, regions);
}

void SocketTransport::Impl::SendAck(SocketPeer& peer, HelloAck& ack,
                                    const std::vector<const MemoryRegion*>& regions) {
  CISTERN_CHECK(regions.size() == ack.regions.size());
  CISTERN_CHECK(regions.size() <= kRegionsPerPeerMax);
  ack.version = peer.version;
  std::vector<int> fds;
  for (size_t i = 0; i < regions.size(); ++i) {
    ack.regions[i].bytes = regions[i]->bytes();
    fds.push_back(regions[i]->fd());
  }
  peer.path.device = DeviceOf(peer.fd.get());
  if (!regions.empty() || !peer.regions.empty()) SetMapped(peer);
  OfferRing(peer, ack, fds);
  body_.clear();
  ack.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kHelloAck;
  frame.body = body_;
  if (!fds.empty()) peer.writer.AttachFds(std::move(fds));
  CISTERN_CHECK(peer.writer.Push(frame, peer.version).ok());
  Flush(peer);
  peer.ring_offered = peer.ring != nullptr;
  if (!peer.ring_offered) peer.reader.ReadAhead();
  if (peer.ring_offered && !peer.writer.empty())
    Doom(peer, absl::UnavailableError("the socket takes no ack"));
}

void SocketTransport::Impl::SetMapped(SocketPeer& peer) {
  peer.path.kind = PathKind::kMap;
  peer.path.memory = "memfd, read-only map; frames over the socket";
  peer.path.why = "same host";
  peer.path.one_sided = true;
}

void SocketTransport::Impl::OnAckFrame(SocketPeer& peer) {
  peer.reader.ExpectFds(false);
  if (peer.reader.header().type == FrameType::kRefused) {
    Refused refused;
    const absl::Status decoded = refused.Decode(peer.reader.body());
    if (!decoded.ok()) return CloseBad(peer, decoded);
    Down(peer, absl::Status(refused.code, refused.message));
    return;
  }
  HelloAck ack;
  absl::Status status = ack.Decode(peer.reader.body());
  const Hello& hello = peer.connect.hello;
  if (status.ok() && (ack.version < std::max<uint16_t>(hello.version_min, kWireVersionMin) ||
                      ack.version > std::min<uint16_t>(hello.version_max, kWireVersionMax))) {
    status = absl::InvalidArgumentError(absl::StrCat("wire version ", ack.version, " was not offered"));
  }
  if (!status.ok()) return CloseBad(peer, status);
  std::vector<UniqueFd> fds = peer.reader.TakeFds();
  const bool ring_offered =
      ack.version >= kRingWireVersion && !ack.regions.empty() && ack.regions.back().id == kRingRegion;
  absl::StatusOr<std::unique_ptr<SharedRing>> ring = absl::UnavailableError("none was offered");
  if (ring_offered) ring = TakeRing(peer, ack, fds);
  if (hello.wants_map && !ack.regions.empty()) {
    status = peer.regions.Map(ack.regions, std::move(fds));
    if (status.ok()) {
      SetMapped(peer);
    } else {
      RefuseMap(peer, status);
    }
  } else if (hello.wants_map) {
    RefuseMap(peer, absl::UnavailableError("the node offers no memory"));
  }
  peer.state = State::kUp;
  peer.deadline = kNever;
  peer.version = static_cast<uint8_t>(ack.version);
  if (!peer.path.one_sided) ring = absl::UnavailableError("no memory is mapped");
  if (ring_offered) AnswerRing(peer, std::move(ring));
  if (peer.state == State::kDown) return;
  if (!peer.in_ring) peer.reader.ReadAhead();
  handler_->OnPeerUp(peer.id, ack);
}

// Tells why, then waits for the peer to close: a reset could overtake the message.
void SocketTransport::Impl::Refuse(SocketPeer& peer, const absl::Status& why) {
  peer.state = State::kRefusing;
  Refused refused;
  refused.code = why.code();
  refused.message = std::string(why.message());
  body_.clear();
  refused.Encode(body_);
  OutFrame frame;
  frame.type = FrameType::kRefused;
  frame.body = body_;
  CISTERN_CHECK(peer.writer.Push(frame, kWireVersionMin).ok());
  Flush(peer);
  if (!peer.doomed) shutdown(peer.fd.get(), SHUT_WR);
}

}  // namespace cistern
