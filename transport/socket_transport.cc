#include "transport/socket_transport.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/error_of.h"
#include "core/make_room.h"
#include "core/status_macros.h"
#include "transport/socket_impl.h"

namespace cistern {
absl::StatusOr<std::unique_ptr<SocketTransport>> SocketTransport::Create(Clock& clock,
                                                                         const SocketOptions& options) {
  auto impl = std::make_unique<Impl>(clock, options);
  if (absl::Status status = impl->Open(); !status.ok()) return status;
  return std::unique_ptr<SocketTransport>(new SocketTransport(std::move(impl)));
}
SocketTransport::SocketTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SocketTransport::~SocketTransport() = default;
absl::StatusOr<std::string> SocketTransport::Listen(const std::string& address) {
  return impl_->Listen(address);
}
absl::Status SocketTransport::AddWakeFd(int fd) { return impl_->AddWakeFd(fd); }
void SocketTransport::SetHandler(TransportHandler* handler) { impl_->set_handler(handler); }
absl::StatusOr<PeerId> SocketTransport::Connect(const std::string& address, const ConnectOptions& options) {
  return impl_->Connect(address, options);
}
absl::Status SocketTransport::Send(PeerId peer, const OutFrame& frame) { return impl_->Send(peer, frame); }
absl::Status SocketTransport::Pull(PeerId peer, const PullRequest& request) {
  return impl_->Pull(peer, request);
}
bool SocketTransport::Cancel(PeerId peer, uint64_t request_id) { return impl_->Cancel(peer, request_id); }
void SocketTransport::Fence(PeerId peer, const absl::Status& why) { impl_->Fence(peer, why); }
const PeerPath* SocketTransport::Path(PeerId peer) const { return impl_->Path(peer); }
std::vector<ConstSegment> SocketTransport::MappedRegions(PeerId peer) const {
  return impl_->MappedRegions(peer);
}
bool SocketTransport::Poll() { return impl_->Poll(); }
bool SocketTransport::AwaitsBulk() const { return impl_->AwaitsBulk(); }
int SocketTransport::WaitFd() const { return impl_->wait_fd(); }
void SocketTransport::SetSpinning(bool spinning) { impl_->SetSpinning(spinning); }
std::map<std::string, uint64_t> SocketTransport::counters() const { return impl_->counters(); }
size_t SocketTransport::peer_count() const { return impl_->peer_count(); }

absl::Status SocketTransport::Impl::Open() {
  cookies_.reserve(kSendQueueFramesMax);
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!epoll_.valid() || !wake_.valid() || !timer_.valid() || !spare_.valid()) {
    return absl::ErrnoToStatus(errno, "descriptors of a socket transport");
  }
  CISTERN_RETURN_IF_ERROR(AddToEpoll(wake_.get(), kWakeTag, 0, EPOLLIN));
  return AddToEpoll(timer_.get(), kTimerTag, 0, EPOLLIN);
}

absl::Status SocketTransport::Impl::AddToEpoll(int fd, Tag tag, uint32_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = uint64_t{tag} << 32 | id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return ErrorOf(absl::ErrnoToStatusCode(errno), "epoll_ctl: ", std::strerror(errno));
}

absl::StatusOr<std::string> SocketTransport::Impl::Listen(const std::string& address) {
  CISTERN_CHECK(handler_ != nullptr);
  if (listeners_.size() >= kListenersMax) {
    return absl::ResourceExhaustedError(absl::StrCat(address, ": ", kListenersMax, " listeners are open"));
  }
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress parsed, SocketAddress::Parse(address));
  CISTERN_ASSIGN_OR_RETURN(UniqueFd fd, parsed.Listen());
  CISTERN_ASSIGN_OR_RETURN(std::string bound, BoundAddress(fd.get()));
  CISTERN_RETURN_IF_ERROR(
      AddToEpoll(fd.get(), kListenerTag, static_cast<uint32_t>(listeners_.size()), EPOLLIN));
  listeners_.push_back({std::move(fd), parsed.is_unix()});
  return bound;
}

absl::Status SocketTransport::Impl::AddWakeFd(int fd) { return AddToEpoll(fd, kForeignTag, 0, EPOLLIN); }

SocketPeer* SocketTransport::Impl::Find(PeerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

// Makes a peer of a socket; it is watched, and has until the handshake's deadline.
absl::StatusOr<SocketPeer*> SocketTransport::Impl::Adopt(UniqueFd fd, bool accepted, bool is_unix) {
  if (peers_.size() >= options_.peers_max) {
    return absl::ResourceExhaustedError(absl::StrCat("at most ", options_.peers_max, " peers"));
  }
  if (next_id_ == 0) return absl::ResourceExhaustedError("peer ids are used up");
  if (!is_unix) TuneTcp(fd.get());
  if (options_.send_buffer_bytes > 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &options_.send_buffer_bytes, sizeof(int));
  }
  if (options_.receive_buffer_bytes > 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &options_.receive_buffer_bytes, sizeof(int));
  }
  const PeerId id = next_id_;
  auto peer =
      std::make_unique<SocketPeer>(id, std::move(fd), accepted, is_unix, absl::MakeSpan(scratch_->bytes));
  peer->wants_write = !accepted;  // A connect ends with the socket becoming writable.
  peer->path.why = options_.why;
  peer->path.memory = "host, copied by the kernel";
  peer->reader.ExpectFds(is_unix);
  peer->deadline = clock_.Now() + kHandshakeDeadline;
  ScheduleCheck(peer->deadline);
  // A list of peers that each is in once, at most, has room for all of them.
  for (std::vector<PeerId>* list : {&doomed_, &strangers_, &ring_ids_}) MakeRoom(*list, peers_.size() + 1);
  MakeRoom(graveyard_, peers_.size() + 1);
  // From here on it is there, or its socket is closed: nothing else takes memory.
  SocketPeer* const adopted = peers_.emplace(id, std::move(peer)).first->second.get();
  if (absl::Status watched = AddToEpoll(adopted->fd.get(), kPeerTag, id,
                                        EPOLLIN | (adopted->wants_write ? uint32_t{EPOLLOUT} : 0u));
      !watched.ok()) {
    peers_.erase(id);
    return watched;
  }
  ++next_id_;
  if (adopted->wants_write) ++writers_waiting_;
  return adopted;
}

absl::StatusOr<PeerId> SocketTransport::Impl::Connect(const std::string& address,
                                                      const ConnectOptions& options) {
  CISTERN_CHECK(handler_ != nullptr);
  Inside inside(*this);
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress parsed, SocketAddress::Parse(address));
  absl::StatusOr<UniqueFd> fd = parsed.Connect();
  absl::Status failed = fd.status();
  if (!fd.ok()) fd = UniqueFd(eventfd(0, EFD_CLOEXEC));  // A peer that is down from the start, told by Poll.
  ConnectOptions copied = options;                       // Before there is a peer that would be nobody's.
  CISTERN_ASSIGN_OR_RETURN(SocketPeer * peer, Adopt(*std::move(fd), false, parsed.is_unix()));
  peer->connect = std::move(copied);
  if (!failed.ok()) Doom(*peer, std::move(failed));
  return peer->id;
}

absl::Status SocketTransport::Impl::Send(PeerId id, const OutFrame& frame) {
  Inside inside(*this);
  SocketPeer* peer = Find(id);
  if (peer == nullptr || peer->state != State::kUp || peer->doomed) {
    return absl::UnavailableError(absl::StrCat("peer ", id, " is not up"));
  }
  // Once the frame is queued nothing may fail: what throws has sent nothing.
  MakeRoom(sent_, peer->writer.frames() + 1);
  MakeRoom(unflushed_);
  CISTERN_RETURN_IF_ERROR(peer->writer.Push(frame, peer->version));
  if (frame.flush) {
    if (!peer->wants_write) Flush(*peer);
  } else if (!peer->unflushed) {
    peer->unflushed = true;
    unflushed_.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status SocketTransport::Impl::Pull(PeerId id, const PullRequest& request) {
  Inside inside(*this);
  SocketPeer* peer = Find(id);
  if (peer == nullptr || peer->state != State::kUp || peer->doomed) {
    return absl::UnavailableError(absl::StrCat("peer ", id, " is not up"));
  }
  if (!peer->path.one_sided) return absl::FailedPreconditionError("this path has no one-sided reads");
  handler_->OnPulled(id, request.pull_id, peer->regions.Pull(request));
  return absl::OkStatus();
}

bool SocketTransport::Impl::Cancel(PeerId id, uint64_t request_id) {
  SocketPeer* peer = Find(id);
  if (peer == nullptr || peer->doomed) return true;  // Nothing of it will come.
  if (!peer->reader.DrainIfArriving(request_id)) {
    if (peer->cancelled.size() >= kCancelledRequestsMax) return false;
    peer->cancelled.insert(request_id);
  }
  ++counters_.cancelled_requests;
  return true;
}

void SocketTransport::Impl::Fence(PeerId id, const absl::Status& why) {
  Inside inside(*this);
  SocketPeer* peer = Find(id);
  if (peer != nullptr) Down(*peer, why);
}

const PeerPath* SocketTransport::Impl::Path(PeerId id) const {
  const SocketPeer* peer = Find(id);
  return peer == nullptr ? nullptr : &peer->path;
}

std::vector<ConstSegment> SocketTransport::Impl::MappedRegions(PeerId id) const {
  const SocketPeer* peer = Find(id);
  return peer == nullptr ? std::vector<ConstSegment>() : peer->regions.AsSegments();
}

std::map<std::string, uint64_t> SocketTransport::Impl::counters() const {
  SocketCounters now = counters_;
  for (const auto& [id, peer] : peers_) now.drained_bytes += peer->reader.drained_bytes();
  return now.ToMap();
}

// A node hangs up on another user's client without a word; whose it is stands on the socket.
absl::Status SocketTransport::Impl::WithUser(const SocketPeer& peer, const absl::Status& why) {
  if (peer.state != State::kAwaitAck || !peer.is_unix) return why;
  const int64_t user = PeerUid(peer.fd.get());
  if (user < 0 || user == static_cast<int64_t>(geteuid())) return why;
  return absl::Status(why.code(), absl::StrCat(why.message(), ": the node runs as user ", user,
                                               ", this process as user ", geteuid()));
}

void SocketTransport::Impl::Down(SocketPeer& peer, const absl::Status& cause) {
  if (peer.state == State::kDown) return;
  const absl::Status why = WithUser(peer, cause);
  const bool known = peer.IsKnown();
  if (peer.IsUnauthenticated()) std::erase(strangers_, peer.id);
  peer.state = State::kDown;
  if (peer.wants_write) --writers_waiting_;
  if (peer.in_stream) --streams_;
  if (peer.ring != nullptr) --rings_;
  if (peer.in_ring) std::erase(ring_ids_, peer.id);
  peer.fd.Reset();  // Leaves epoll with it.
  counters_.drained_bytes += peer.reader.drained_bytes();
  const auto found = peers_.find(peer.id);
  graveyard_.push_back(std::move(found->second));
  peers_.erase(found);
  if (known) handler_->OnPeerDown(peer.id, why);
}

void SocketTransport::Impl::Doom(SocketPeer& peer, absl::Status why) {
  if (peer.doomed) return;
  peer.doomed = true;
  peer.doom = std::move(why);
  doomed_.push_back(peer.id);
  Wake();
}

// Outside of Poll nothing but this tells a sleeping owner that there is something to deliver. One that spins
// comes anyway.
void SocketTransport::Impl::Wake() {
  if (awake_ || polling_ || spinning_) return;
  awake_ = true;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void SocketTransport::Impl::Flush(SocketPeer& peer) {
  if (peer.ring_offered) return;  // Until the client has said where frames go.
  MakeRoom(sent_, peer.writer.frames());
  cookies_.clear();
  const FrameWriter::Outcome outcome = peer.writer.Write(peer.fd.get(), cookies_);
  if (peer.in_ring) AfterRingWrite(peer, outcome);
  for (const uint64_t cookie : cookies_) sent_.emplace_back(peer.id, cookie);
  if (!cookies_.empty()) Wake();
  switch (outcome) {
    case FrameWriter::Outcome::kBroken:
      Doom(peer, peer.writer.error());
      break;
    case FrameWriter::Outcome::kDrained:
      Watch(peer, false);
      break;
    case FrameWriter::Outcome::kBlocked:
    case FrameWriter::Outcome::kMore:
      if (!peer.wants_write || peer.written_at_progress != peer.writer.written_bytes()) {
        peer.written_at_progress = peer.writer.written_bytes();
        peer.last_progress = clock_.Now();
      }
      Watch(peer, true);
      ScheduleCheck(peer.last_progress + kStalledSendMax);
      break;
  }
}

void SocketTransport::Impl::Watch(SocketPeer& peer, bool wants_write) {
  if (peer.wants_write == wants_write) return;
  peer.wants_write = wants_write;
  wants_write ? ++writers_waiting_ : --writers_waiting_;
  if (peer.in_ring) return;  // Room in the ring is told by a bell.
  epoll_event event{};
  event.events = EPOLLIN | (wants_write ? uint32_t{EPOLLOUT} : 0u);
  event.data.u64 = uint64_t{kPeerTag} << 32 | peer.id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.fd.get(), &event);
}

}  // namespace cistern
