#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "core/error_of.h"
#include "transport/polling_scope.h"
#include "transport/socket_impl.h"

// What SocketTransport::Poll does: sockets, frames, deferred callbacks, deadlines.
namespace cistern {
namespace {

constexpr int kEventsPerPoll = 64;

}  // namespace

bool SocketTransport::Impl::Poll() {
  if (polling_) return false;  // From inside a callback.
  Inside inside(*this);
  bool moved = false;
  try {
    const PollingScope polling(polling_);
    moved = FlushWaiting();
    moved |= PollSockets();
    if (next_check_ != kNever && clock_.Now() >= next_check_) CheckDeadlines();
    moved |= DeliverDeferred();
    if (awake_) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
      awake_ = false;
    }
  } catch (...) {
    Wake();  // What is left is seen by the next one.
    throw;
  }
  if (!sent_.empty() || !doomed_.empty()) Wake();
  WakeForRings();
  return moved;
}

bool SocketTransport::Impl::FlushWaiting() {
  if (unflushed_.empty()) return false;
  for (const PeerId id : unflushed_) {
    SocketPeer* peer = Find(id);
    if (peer == nullptr) continue;
    peer->unflushed = false;
    if (!peer->doomed && !peer->wants_write && !peer->writer.empty()) Flush(*peer);
  }
  unflushed_.clear();
  return true;
}

bool SocketTransport::Impl::PollSockets() {
  // Where reading ended for want of memory, what was read ahead lies in the scratch of all: it is used first.
  SocketPeer* const unread = reading_ != 0 ? Find(std::exchange(reading_, 0)) : nullptr;
  bool moved = unread != nullptr && !unread->doomed && ServeRead(*unread);
  moved |= ServeRings();
  if (peers_.size() - ring_ids_.size() <= kDirectPeersMax) {
    moved |= ServeDirectly();
    if (++direct_rounds_ < kDirectRoundsMax) return moved;
    direct_rounds_ = 0;
  }
  epoll_event events[kEventsPerPoll];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerPoll, 0);
  for (int i = 0; i < count; ++i) moved |= HandleEvent(events[i]);
  return moved;
}

bool SocketTransport::Impl::ServeDirectly() {
  bool moved = false;
  ids_.clear();
  for (const auto& [id, peer] : peers_) {
    if (peer->state != State::kUp)
      direct_rounds_ = kDirectRoundsMax;  // A handshake: epoll knows when it goes on.
    if (peer->state == State::kUp && !peer->doomed && !peer->in_ring) ids_.push_back(id);
  }
  for (const PeerId id : ids_) {
    SocketPeer* peer = Find(id);  // An earlier one's callback may have closed it.
    if (peer == nullptr) continue;
    if (peer->wants_write) {
      const uint64_t before = peer->writer.written_bytes();
      Flush(*peer);
      moved |= peer->writer.written_bytes() != before;
    }
    moved |= ServeRead(*peer);
  }
  return moved;
}

bool SocketTransport::Impl::HandleEvent(const epoll_event& event) {
  const auto tag = static_cast<Tag>(event.data.u64 >> 32);
  const auto id = static_cast<uint32_t>(event.data.u64);
  if (tag == kListenerTag) return Accept(id);
  if (tag == kTimerTag) {
    uint64_t count = 0;
    (void)!read(timer_.get(), &count, sizeof(count));
    ArmTimer();  // In case the owner's clock has not come as far.
    return false;
  }
  if (tag != kPeerTag) return false;  // wake_ is read by Poll, a foreign one by its owner.
  SocketPeer* peer = Find(id);
  if (peer == nullptr || peer->doomed) return false;
  if (peer->state == State::kConnecting) {
    ConnectDone(*peer);
    return true;
  }
  if (peer->in_ring) return !HearBells(*peer) || ServeRing(*peer);
  bool moved = false;
  if ((event.events & EPOLLOUT) != 0) {
    Flush(*peer);
    moved = true;
  }
  if ((event.events & ~uint32_t{EPOLLOUT}) != 0) moved |= ServeRead(*peer);
  return moved;
}

bool SocketTransport::Impl::ServeRead(SocketPeer& peer) {
  if (peer.state == State::kRefusing) {
    // Only to see the end: closing earlier could take the refusal back before it is read.
    const ssize_t got = recv(peer.fd.get(), scratch_->bytes.data(), scratch_->bytes.size(), MSG_DONTWAIT);
    const bool idle = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (got <= 0 && !idle) Down(peer, absl::OkStatus());
    return !idle;
  }
  reading_ = peer.id;
  peer.reader.StartRound();
  while (peer.state != State::kDown && !peer.doomed) {
    const FrameReader::Event event = peer.reader.Next(peer.fd.get());
    if (event == FrameReader::Event::kNothing) {
      reading_ = 0;
      SetStream(peer, !peer.in_ring && peer.reader.due_bytes() >= kStreamBytesMin);
      return peer.reader.burst_bytes() > 0;
    }
    if (!HandleReadEvent(peer, event)) break;
  }
  reading_ = 0;
  return true;
}

void SocketTransport::Impl::SetStream(SocketPeer& peer, bool on) {
  if (peer.in_stream == on) return;
  peer.in_stream = on;
  on ? ++streams_ : --streams_;
  if (peer.is_unix) return;  // These know no low-water mark for poll.
  int step = 1;
  if (on) {
    // The kernel lets a buffer grow with what comes, but holds it at the mark once that is near its size.
    int buffer = 0;
    socklen_t size = sizeof(buffer);
    if (getsockopt(peer.fd.get(), SOL_SOCKET, SO_RCVBUF, &buffer, &size) != 0) return;
    step = std::clamp(buffer / kStreamStepsPerBuffer, 1, kStreamStepBytes);
  }
  setsockopt(peer.fd.get(), SOL_SOCKET, SO_RCVLOWAT, &step, sizeof(step));
}

// Its frames come once: without memory for one the connection is over, and may be made again.
void SocketTransport::Impl::Handshake(SocketPeer& peer) {
  try {
    peer.state == State::kAwaitHello ? OnHelloFrame(peer) : OnAckFrame(peer);
  } catch (const std::bad_alloc&) {
    Down(peer, NoMemoryError());
  }
}

// False: stop reading this peer in this round.
bool SocketTransport::Impl::HandleReadEvent(SocketPeer& peer, FrameReader::Event event) {
  switch (event) {
    case FrameReader::Event::kNothing:
      return false;
    case FrameReader::Event::kHeader: {
      const absl::Status status = CheckHeader(peer, peer.reader.header());
      if (!status.ok()) CloseBad(peer, status);
      return status.ok();
    }
    case FrameReader::Event::kPayload:
      BeginPayload(peer);
      return true;
    case FrameReader::Event::kFrame:
      if (peer.ring_offered) {
        OnRingWord(peer);
      } else if (peer.state == State::kUp) {
        DeliverFrame(peer);
      } else {
        Handshake(peer);
      }
      return peer.state == State::kUp;
    case FrameReader::Event::kClosed:
      Down(peer, absl::UnavailableError("the peer closed the connection"));
      return false;
    case FrameReader::Event::kBad:
      if (absl::IsUnavailable(peer.reader.error())) {
        Down(peer, peer.reader.error());
      } else {
        CloseBad(peer, peer.reader.error());
      }
      return false;
  }
  return false;
}

void SocketTransport::Impl::BeginPayload(SocketPeer& peer) {
  const FrameHeader& header = peer.reader.header();
  if (!peer.cancelled.empty() && peer.cancelled.erase(header.request_id) > 0) {
    peer.reader.DrainPayload();
    return;
  }
  absl::Status status = handler_->OnPayload(peer.id, header, peer.reader.body(), peer.reader.plan());
  if (peer.state == State::kDown) return;
  if (!status.ok() || peer.reader.draining()) {  // The callback may have cancelled it.
    peer.reader.DrainPayload();
    return;
  }
  status = peer.reader.StartPayload();
  if (!status.ok()) CloseBad(peer, status);
}

void SocketTransport::Impl::DeliverFrame(SocketPeer& peer) {
  FrameReader& reader = peer.reader;
  if (reader.draining()) return;
  if (!peer.cancelled.empty() && peer.cancelled.erase(reader.header().request_id) > 0) return;
  if (reader.header().type ==
      FrameType::kRefused) {  // The node takes its word back, for instance when a ticket ended.
    Refused refused;
    const absl::Status decoded = refused.Decode(reader.body());
    Down(peer, decoded.ok() ? absl::Status(refused.code, refused.message) : decoded);
    return;
  }
  handler_->OnFrame(peer.id, InFrame{reader.header(), reader.body(), reader.piece_crcs()});
}

// What callbacks add while this runs is for the next Poll, so that nobody keeps Poll busy for ever.
bool SocketTransport::Impl::DeliverDeferred() {
  const size_t sent = sent_.size();
  const size_t doomed = doomed_.size();
  for (size_t i = 0; i < sent; ++i) {
    const auto [id, cookie] = sent_[i];
    if (Find(id) != nullptr) handler_->OnSent(id, cookie);
  }
  sent_.erase(sent_.begin(), sent_.begin() + static_cast<ptrdiff_t>(sent));
  for (size_t i = 0; i < doomed; ++i) {
    SocketPeer* peer = Find(doomed_[i]);
    if (peer != nullptr) Down(*peer, absl::Status(peer->doom));
  }
  doomed_.erase(doomed_.begin(), doomed_.begin() + static_cast<ptrdiff_t>(doomed));
  return sent + doomed > 0;
}

void SocketTransport::Impl::CloseBad(SocketPeer& peer, const absl::Status& why) {
  ++counters_.bad_frames;
  Down(peer, absl::Status(why));  // A copy: `why` may lie in the peer.
}

void SocketTransport::Impl::ScheduleCheck(Nanos at) {
  if (at >= next_check_) return;
  next_check_ = at;
  ArmTimer();
}

void SocketTransport::Impl::ArmTimer() {
  if (next_check_ == kNever) return;
  const Nanos left = std::max<Nanos>(next_check_ - clock_.Now(), kMillisecond);
  itimerspec spec{};
  spec.it_value.tv_sec = left / kSecond;
  spec.it_value.tv_nsec = left % kSecond;
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void SocketTransport::Impl::CheckDeadlines() {
  const Nanos now = clock_.Now();
  std::vector<PeerId> late;
  late.reserve(peers_.size());
  next_check_ = kNever;
  Nanos next = kNever;
  for (const auto& [id, peer] : peers_) {
    Nanos at = peer->deadline;
    if (peer->state == State::kUp && peer->wants_write) at = peer->last_progress + kStalledSendMax;
    if (at <= now) {
      late.push_back(id);
    } else {
      next = std::min(next, at);
    }
  }
  ScheduleCheck(next);
  for (const PeerId id : late) {
    SocketPeer* peer = Find(id);
    if (peer == nullptr) continue;
    if (peer->state == State::kUp) {
      ++counters_.stalled_sends;
      Down(*peer, ErrorOf(absl::StatusCode::kUnavailable, "peer ", id, " takes no bytes"));
    } else {
      if (peer->state != State::kRefusing) ++counters_.handshake_timeouts;
      Down(*peer, ErrorOf(absl::StatusCode::kUnavailable, "peer ", id, ": no handshake in time"));
    }
  }
}

}  // namespace cistern
