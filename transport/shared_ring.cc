#include "transport/shared_ring.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {

// Every order that matters here is between two words, one written and then the other read, on both sides
// (position and flag): hence sequentially consistent accesses throughout. On x86 only the stores cost more.

absl::StatusOr<std::unique_ptr<SharedRing>> SharedRing::Create(size_t lane_bytes) {
  CISTERN_CHECK(lane_bytes % 4096 == 0 && lane_bytes > 0 && lane_bytes <= kRingLaneBytesMax);
  CISTERN_ASSIGN_OR_RETURN(
      MemoryRegion memory,
      MemoryRegion::Create("cistern-ring", kHeadBytes + 2 * lane_bytes, /*seal_future_write=*/false));
  // Now, or a page that is not there would end the process on some later write.
  CISTERN_RETURN_IF_ERROR(memory.Populate(0, memory.bytes()));
  // Both readers count as asleep until they say otherwise: no byte of the first moment goes unnoticed.
  for (size_t lane = 0; lane < 2; ++lane) {
    Lane* const at = new (memory.data() + lane * sizeof(Lane)) Lane{};
    at->reader_asleep.store(1);
  }
  return std::unique_ptr<SharedRing>(new SharedRing(std::move(memory), lane_bytes, 1));
}

absl::StatusOr<std::unique_ptr<SharedRing>> SharedRing::Join(UniqueFd fd, uint64_t bytes) {
  if (bytes <= kHeadBytes || bytes > kHeadBytes + 2 * kRingLaneBytesMax ||
      (bytes - kHeadBytes) % (2 * 4096) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a ring of ", bytes, " bytes"));
  }
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion memory,
                           MemoryRegion::MapPeer(fd.Release(), bytes, /*writable=*/true));
  CISTERN_RETURN_IF_ERROR(memory.Populate(0, memory.bytes()));
  return std::unique_ptr<SharedRing>(new SharedRing(std::move(memory), (bytes - kHeadBytes) / 2, 0));
}

SharedRing::SharedRing(MemoryRegion memory, size_t lane_bytes, int out_lane)
    : memory_(std::move(memory)),
      lane_bytes_(lane_bytes),
      out_(reinterpret_cast<Lane*>(memory_.data())[out_lane]),
      in_(reinterpret_cast<Lane*>(memory_.data())[1 - out_lane]),
      out_data_(memory_.data() + kHeadBytes + (out_lane == 1 ? lane_bytes : 0)),
      in_data_(memory_.data() + kHeadBytes + (out_lane == 1 ? 0 : lane_bytes)) {}

int64_t SharedRing::Write(absl::Span<const iovec> from) {
  size_t want = 0;
  for (const iovec& piece : from) want += piece.iov_len;
  if (lane_bytes_ - (written_ - seen_read_) < want) {
    const uint64_t read = out_.read.load();
    if (written_ - read > lane_bytes_) return errno = EBADMSG, -1;
    seen_read_ = read;
  }
  const size_t room = lane_bytes_ - (written_ - seen_read_);
  if (room == 0 && want > 0) return errno = EAGAIN, -1;
  size_t left = std::min(want, room);
  const auto taken = static_cast<int64_t>(left);
  size_t unseen = 0;
  for (const iovec& piece : from) {
    const auto* data = static_cast<const std::byte*>(piece.iov_base);
    for (size_t in_piece = std::min(piece.iov_len, left); in_piece > 0;) {
      const size_t step = std::min(in_piece, kRingStepBytes - unseen);
      CopyIn(data, step);
      data += step;
      in_piece -= step;
      left -= step;
      unseen += step;
      if (unseen < kRingStepBytes) continue;
      out_.written.store(written_);
      unseen = 0;
    }
  }
  if (unseen > 0) out_.written.store(written_);
  return taken;
}

void SharedRing::CopyIn(const std::byte* from, size_t bytes) {
  const size_t at = written_ % lane_bytes_;
  const size_t first = std::min(bytes, lane_bytes_ - at);
  std::memcpy(out_data_ + at, from, first);
  std::memcpy(out_data_, from + first, bytes - first);
  written_ += bytes;
}

int64_t SharedRing::Read(std::byte* to, size_t bytes) {
  const uint64_t there = in_.written.load() - read_;
  if (there == 0) return errno = EAGAIN, -1;
  if (there > lane_bytes_) return errno = EBADMSG, -1;
  bytes = std::min<uint64_t>(bytes, there);
  const size_t at = read_ % lane_bytes_;
  const size_t first = std::min(bytes, lane_bytes_ - at);
  std::memcpy(to, in_data_ + at, first);
  std::memcpy(to + first, in_data_, bytes - first);
  read_ += bytes;
  in_.read.store(read_);
  return static_cast<int64_t>(bytes);
}

bool SharedRing::Readable() const { return in_.written.load() != read_; }

bool SharedRing::HasRoom() const {
  const uint64_t used = written_ - out_.read.load();
  return used <= lane_bytes_ / 2 || used > lane_bytes_;
}

void SharedRing::SetAsleep(bool asleep) {
  asleep_ = asleep;
  in_.reader_asleep.store(asleep ? 1 : 0);
}

void SharedRing::AwaitRoom() {
  waits_ = true;
  out_.writer_waits.store(1);
}

bool SharedRing::SeesWakeTaken() {
  const bool reader = asleep_ && in_.reader_asleep.load() == 0;
  const bool writer = waits_ && out_.writer_waits.load() == 0;
  if (reader) asleep_ = false;
  if (writer) waits_ = false;
  return reader || writer;
}

bool SharedRing::TakeReaderWake() {
  return out_.reader_asleep.load() != 0 && out_.reader_asleep.exchange(0) != 0;
}

bool SharedRing::TakeWriterWake() {
  if (in_.writer_waits.load() == 0) return false;
  const uint64_t there = in_.written.load() - read_;
  if (there > lane_bytes_ / 2) return false;  // Asked again after the next Read.
  return in_.writer_waits.exchange(0) != 0;
}

}  // namespace cistern
