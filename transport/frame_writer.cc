#include "transport/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/error_of.h"
#include "core/status_macros.h"
#include "transport/frame_limits.h"

namespace cistern {
namespace {

constexpr size_t kIovPerSendMax = 64;
constexpr size_t kCompactChunks = 1024;  // Written chunks in front that are worth moving the rest for.

}  // namespace

absl::Status FrameWriter::Push(const OutFrame& frame, uint8_t version) {
  CISTERN_RETURN_IF_ERROR(CheckFrameBytes(frame));
  const uint64_t payload_bytes = PayloadBytes(frame);
  const size_t unpadded_bytes = kFrameHeaderBytes + frame.body.size();
  const size_t head_bytes = (unpadded_bytes + kFrameAlignBytes - 1) / kFrameAlignBytes * kFrameAlignBytes;
  if (frames_ >= kSendQueueFramesMax || head_bytes_ + head_bytes > kSendQueueBytesMax ||
      (!empty() && chunks_.size() - first_ + frame.payload.size() > kSendQueueChunksMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("send queue full: ", frames_, " frames, ", head_bytes_, " bytes"));
  }
  FrameHeader header;
  header.version = version;
  header.type = frame.type;
  header.flags = frame.flags;
  header.request_id = frame.request_id;
  header.body_bytes = static_cast<uint32_t>(frame.body.size());
  header.pad_bytes = static_cast<uint32_t>(head_bytes - unpadded_bytes);
  header.payload_bytes = payload_bytes;
  header.body_crc = Crc32c(frame.body.data(), frame.body.size());
  std::byte raw[kFrameHeaderBytes];
  EncodeFrameHeader(header, raw);

  const size_t head_offset = heads_.size();
  const size_t chunks = chunks_.size();
  try {
    heads_.insert(heads_.end(), raw, raw + kFrameHeaderBytes);
    heads_.insert(heads_.end(), frame.body.begin(), frame.body.end());
    heads_.resize(head_offset + head_bytes);
    chunks_.push_back({nullptr, head_offset, head_bytes, 0, 0});
    for (const ConstSegment& segment : frame.payload) {
      if (segment.bytes > 0) chunks_.push_back({segment.data, 0, segment.bytes, 0, 0});
    }
  } catch (...) {  // Half a frame would take what follows it for its own rest.
    heads_.resize(head_offset);
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(chunks), chunks_.end());
    throw;
  }
  chunks_.back().frame_bytes = head_bytes;
  chunks_.back().cookie = frame.cookie;
  ++frames_;
  head_bytes_ += head_bytes;
  return absl::OkStatus();
}

FrameWriter::Outcome FrameWriter::Write(int fd, std::vector<uint64_t>& sent) {
  size_t burst = 0;
  while (!empty()) {
    if (burst >= kWriteBurstBytesMax) return Outcome::kMore;
    size_t asked = 0;
    const int64_t done = SendSome(fd, asked);
    if (done < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kBlocked;
      if (errno == EBADMSG) {
        error_ = ErrorOf(absl::StatusCode::kInvalidArgument, "the peer's position in the ring cannot be");
        return Outcome::kBroken;
      }
      error_ = ErrorOf(absl::StatusCode::kUnavailable, "send: ", std::strerror(errno));
      return Outcome::kBroken;
    }
    Consume(static_cast<size_t>(done), sent);
    burst += static_cast<size_t>(done);
    if (static_cast<size_t>(done) < asked) return Outcome::kBlocked;  // One more try would only say EAGAIN.
  }
  return Outcome::kDrained;
}

int64_t FrameWriter::SendSome(int fd, size_t& asked) {
  iovec iov[kIovPerSendMax];
  size_t count = 0;
  for (size_t i = first_; i < chunks_.size() && count < kIovPerSendMax; ++i) {
    const Chunk& chunk = chunks_[i];
    const std::byte* data = chunk.data != nullptr ? chunk.data : heads_.data() + chunk.head_offset;
    const size_t skip = i == first_ ? first_done_ : 0;
    iov[count].iov_base = const_cast<std::byte*>(data + skip);
    iov[count].iov_len = chunk.bytes - skip;
    asked += iov[count++].iov_len;
  }
  if (ring_ != nullptr) return ring_->Write(absl::MakeConstSpan(iov, count));
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = count;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kRegionsPerPeerMax)];
  if (!fds_.empty()) {
    CISTERN_CHECK(fds_.size() <= kRegionsPerPeerMax);
    std::memset(control, 0, sizeof(control));
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds_.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds_.size());
    std::memcpy(CMSG_DATA(rights), fds_.data(), sizeof(int) * fds_.size());
  }
  const ssize_t done = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (done > 0) fds_.clear();
  return done;
}

void FrameWriter::Consume(size_t bytes, std::vector<uint64_t>& sent) {
  written_bytes_ += bytes;
  while (first_ < chunks_.size()) {
    const Chunk& chunk = chunks_[first_];
    const size_t take = std::min(bytes, chunk.bytes - first_done_);
    bytes -= take;
    first_done_ += take;
    if (first_done_ < chunk.bytes) break;
    if (chunk.frame_bytes > 0) {
      --frames_;
      head_bytes_ -= chunk.frame_bytes;
      if (chunk.cookie != 0) sent.push_back(chunk.cookie);
    }
    ++first_;
    first_done_ = 0;
  }
  Compact();
}

// Forgets what is written. A queue that never drains still gives back its front.
void FrameWriter::Compact() {
  if (empty()) {
    heads_.clear();
    chunks_.clear();
    first_ = 0;
    return;
  }
  if (first_ < kCompactChunks || first_ < chunks_.size() / 2) return;
  chunks_.erase(chunks_.begin(), chunks_.begin() + static_cast<ptrdiff_t>(first_));
  first_ = 0;
  size_t base = heads_.size();
  for (const Chunk& chunk : chunks_) {
    if (chunk.data != nullptr) continue;
    base = chunk.head_offset;
    break;
  }
  heads_.erase(heads_.begin(), heads_.begin() + static_cast<ptrdiff_t>(base));
  for (Chunk& chunk : chunks_) chunk.head_offset -= chunk.data == nullptr ? base : 0;
}

}  // namespace cistern
