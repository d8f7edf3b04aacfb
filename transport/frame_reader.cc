#include "transport/frame_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/make_room.h"

namespace cistern {

using Event = FrameReader::Event;

Event FrameReader::Next(int fd) {
  Event event = Event::kNothing;
  for (;;) {
    switch (state_) {
      case State::kHeader:
        if (head_end_ - head_at_ >= kFrameHeaderBytes) return DecodeHeader();
        if (!FillHead(fd, kFrameHeaderBytes, event)) return event;
        break;
      case State::kBody:
        if (PaddedBodyBytes() > kReceiveHeadBytes) {
          large_body_got_ = 0;
          state_ = State::kLargeBody;
          break;
        }
        if (head_end_ - head_at_ >= PaddedBodyBytes()) {
          body_ = ByteView(head_.data() + head_at_, header_.body_bytes);
          head_at_ += PaddedBodyBytes();
          return FinishBody();
        }
        if (!FillHead(fd, PaddedBodyBytes(), event)) return event;
        break;
      case State::kLargeBody:
        if (large_body_got_ == PaddedBodyBytes()) {
          body_ = ByteView(large_body_.data(), header_.body_bytes);
          return FinishBody();
        }
        if (!ReceiveLargeBody(fd, event)) return event;
        break;
      case State::kPayloadDue:
        plan_.Clear();  // Of an owner that ran out of memory over it.
        return Event::kPayload;
      case State::kPayload:
        if (payload_left_ == 0) {
          state_ = State::kFrameDone;
          return Event::kFrame;
        }
        if (!ReceivePayload(fd, event)) return event;
        break;
      case State::kFrameDone:
        if (large_body_.capacity() > kBodyKeptBytesMax) large_body_ = Bytes();
        body_ = {};
        draining_ = false;
        payload_before_ = header_.payload_bytes > 0;
        state_ = State::kHeader;
        break;
    }
  }
}

Event FrameReader::DecodeHeader() {
  absl::StatusOr<FrameHeader> header =
      DecodeFrameHeader(ByteView(head_.data() + head_at_, kFrameHeaderBytes));
  if (!header.ok()) return Bad(header.status());
  header_ = *header;
  head_at_ += kFrameHeaderBytes;
  state_ = State::kBody;
  return Event::kHeader;
}

Event FrameReader::FinishBody() {
  if (Crc32c(body_.data(), body_.size()) != header_.body_crc) {
    return Bad(absl::DataLossError("frame body_crc wrong"));
  }
  piece_crcs_.clear();
  plan_.Clear();
  if (header_.payload_bytes == 0) {
    state_ = State::kFrameDone;
    return Event::kFrame;
  }
  state_ = State::kPayloadDue;
  return Event::kPayload;
}

absl::Status FrameReader::StartPayload() {
  uint64_t total = 0;
  targets_.clear();
  for (uint32_t i = 0; i < plan_.pieces.size(); ++i) {
    const PayloadPlan::Piece& piece = plan_.pieces[i];
    total += piece.bytes;
    if (piece.segment_count == 0) {
      if (piece.bytes > 0) targets_.push_back({nullptr, piece.bytes, i});
      continue;
    }
    const uint64_t end = uint64_t{piece.first_segment} + piece.segment_count;
    if (end > plan_.segments.size()) return absl::InternalError("payload plan: segment out of range");
    size_t bytes = 0;
    for (uint64_t j = piece.first_segment; j < end; ++j) {
      const Segment& segment = plan_.segments[j];
      bytes += segment.bytes;
      if (segment.bytes > 0) targets_.push_back({segment.data, segment.bytes, i});
    }
    if (bytes != piece.bytes) {
      return absl::InternalError(
          absl::StrCat("payload plan: a piece of ", piece.bytes, " bytes has segments of ", bytes));
    }
  }
  if (total != header_.payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload of ", header_.payload_bytes, " bytes where ", total, " belong"));
  }
  piece_crcs_.assign(plan_.pieces.size(), 0);
  payload_left_ = header_.payload_bytes;
  target_ = 0;
  target_at_ = 0;
  state_ = State::kPayload;
  return absl::OkStatus();
}

void FrameReader::DrainPayload() {
  if (state_ == State::kPayloadDue) {
    payload_left_ = header_.payload_bytes;
    state_ = State::kPayload;
  }
  draining_ = true;
}

bool FrameReader::DrainIfArriving(uint64_t request_id) {
  const bool arriving = state_ == State::kPayload || state_ == State::kPayloadDue;
  if (!arriving || header_.request_id != request_id) return false;
  draining_ = true;
  return true;
}

bool FrameReader::FillHead(int fd, size_t need, Event& event) {
  if (head_at_ > 0) {
    std::memmove(head_.data(), head_.data() + head_at_, head_end_ - head_at_);
    head_end_ -= head_at_;
    head_at_ = 0;
  }
  if (ahead_end_ > ahead_at_) {
    const size_t take = std::min(need - head_end_, ahead_end_ - ahead_at_);
    std::memcpy(head_.data() + head_end_, scratch_.data() + ahead_at_, take);
    ahead_at_ += take;
    head_end_ += take;
    return true;
  }
  if (dry_) return event = Event::kNothing, false;
  if (read_ahead_ && payload_before_) return ReceiveAhead(fd, event);
  const size_t room = kReceiveHeadBytes - head_end_;
  int64_t got = 0;
  if (!expect_fds_) {
    got = Receive(fd, head_.data() + head_end_, room);
  } else {
    iovec iov{head_.data() + head_end_, room};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kRegionsPerPeerMax)];
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    MakeRoom(fds_, kRegionsPerPeerMax);  // What is received comes once, the bytes beside them too.
    got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0 && !TakeControl(&message)) {
      event = Bad(absl::InvalidArgumentError("too many descriptors with the handshake"));
      return false;
    }
  }
  if (!Account(got, room, event)) return false;
  head_end_ += static_cast<size_t>(got);
  return true;
}

bool FrameReader::ReceiveAhead(int fd, Event& event) {
  const absl::Span<std::byte> to = Landing();
  const int64_t got = Receive(fd, to.data(), to.size());
  if (!Account(got, to.size(), event)) return false;
  ahead_at_ = static_cast<size_t>(to.data() - scratch_.data());
  ahead_end_ = ahead_at_ + static_cast<size_t>(got);
  return true;
}

int64_t FrameReader::Receive(int fd, std::byte* to, size_t bytes) {
  return ring_ != nullptr ? ring_->Read(to, bytes) : recv(fd, to, bytes, MSG_DONTWAIT);
}

ByteView FrameReader::UseRing(SharedRing* ring) {
  CISTERN_CHECK(!read_ahead_ && (state_ == State::kFrameDone || state_ == State::kHeader));
  const ByteView behind(head_.data() + head_at_, head_end_ - head_at_);
  head_at_ = 0;
  head_end_ = 0;
  dry_ = false;
  ring_ = ring;
  return behind;
}

bool FrameReader::TakeControl(const void* opaque) {
  auto& message = *const_cast<msghdr*>(static_cast<const msghdr*>(opaque));
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
      fds_.emplace_back(fd);  // Owned at once, so that whatever is wrong later closes it.
    }
  }
  return (message.msg_flags & MSG_CTRUNC) == 0 && fds_.size() <= kRegionsPerPeerMax;
}

bool FrameReader::ReceiveLargeBody(int fd, Event& event) {
  const size_t need = PaddedBodyBytes();
  // Twice what came, so that memory follows bytes, not announcements.
  const size_t size = std::min(need, std::max<size_t>(64u << 10, 2 * large_body_got_));
  if (large_body_.size() < size) large_body_.resize(size);
  if (const ByteView here = TakeReceived(size - large_body_got_); !here.empty()) {
    std::memcpy(large_body_.data() + large_body_got_, here.data(), here.size());
    large_body_got_ += here.size();
    return true;
  }
  if (dry_) return event = Event::kNothing, false;
  const size_t room = std::min(need, large_body_.size()) - large_body_got_;  // > 0: size grew past what came.
  const int64_t got = Receive(fd, large_body_.data() + large_body_got_, room);
  if (!Account(got, room, event)) return false;
  large_body_got_ += static_cast<size_t>(got);
  return true;
}

ByteView FrameReader::TakeReceived(size_t bytes) {
  const bool from_head = head_end_ > head_at_;
  size_t& at = from_head ? head_at_ : ahead_at_;
  const size_t take = std::min(bytes, (from_head ? head_end_ : ahead_end_) - at);
  at += take;
  return {(from_head ? head_.data() : scratch_.data()) + at - take, take};
}

bool FrameReader::ReceivePayload(int fd, Event& event) {
  // What came together with the header, or behind it.
  if (const ByteView here = TakeReceived(payload_left_); !here.empty()) {
    Land(here.data(), here.size());
    return true;
  }
  if (dry_) return event = Event::kNothing, false;
  if (read_ahead_) {
    if (!ReceiveAhead(fd, event)) return false;
    // The rest of a payload most likely came meanwhile; that of a frame not begun does not.
    if (ahead_end_ - ahead_at_ < payload_left_ && !RoundIsLong()) dry_ = false;
    return true;
  }
  const absl::Span<std::byte> to = Landing().first(std::min<uint64_t>(payload_left_, Landing().size()));
  const int64_t got = Receive(fd, to.data(), to.size());
  if (!Account(got, to.size(), event)) return false;
  Land(to.data(), static_cast<size_t>(got));
  return true;
}

void FrameReader::Land(const std::byte* from, size_t bytes) {
  payload_left_ -= bytes;
  if (draining_) {
    drained_bytes_ += bytes;
    return;
  }
  while (bytes > 0) {
    const Target& target = targets_[target_];
    const size_t take = std::min(bytes, target.bytes - target_at_);
    if (target.data != nullptr) {
      uint32_t& crc = piece_crcs_[target.piece];
      crc = CopyCrc32c(target.data + target_at_, from, take, crc);
    } else {
      drained_bytes_ += take;
    }
    from += take;
    bytes -= take;
    target_at_ += take;
    if (target_at_ == target.bytes) ++target_, target_at_ = 0;
  }
}

bool FrameReader::Account(int64_t got, size_t asked, Event& event) {
  if (got > 0) {
    burst_bytes_ += static_cast<size_t>(got);
    received_ += static_cast<size_t>(got);
    // After a short read one more try would most likely only say EAGAIN; after a long round others are due.
    ++receives_;
    dry_ = static_cast<size_t>(got) < asked || RoundIsLong();
    return true;
  }
  if (got == 0) return event = Event::kClosed, false;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    dry_ = true;
    return event = Event::kNothing, false;
  }
  if (errno == EBADMSG) {
    event = Bad(absl::InvalidArgumentError("the peer's position in the ring cannot be"));
    return false;
  }
  event = Bad(absl::UnavailableError(absl::StrCat("receive: ", std::strerror(errno))));
  return false;
}

Event FrameReader::Bad(absl::Status why) {
  error_ = std::move(why);
  return Event::kBad;
}

}  // namespace cistern
