#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/arena.h"
#include "transport/unique_fd.h"

struct iovec;

namespace cistern {

inline constexpr size_t kRingLaneBytes = 256u << 10;  // Each way; what one side may be ahead of the other.
inline constexpr size_t kRingLaneBytesMax = 16u << 20;
// A writer shows what it wrote in steps of this, so that the reader copies beside it.
inline constexpr size_t kRingStepBytes = 32u << 10;

// Two byte streams between two processes in one sealed memfd, one each way, for frames of a `map` peer: what
// both ends have to do while they spin costs no system call. A side that is about to sleep says so
// (SetAsleep) and is owed a wake-up for what comes then; a side that found no room likewise (AwaitRoom). The
// ring only says when one is owed (TakeReaderWake, TakeWriterWake); how it travels is its owner's business.
//
// The peer may write anything anywhere in this memory at any time. Positions are kept here, never read back;
// those of the peer are checked on every use, and bytes are copied out before anybody looks at them. Flags of
// the peer cost at most one wake-up for each call.
//
// Owner: one peer's connection. Thread: the transport's. No call waits or allocates.
class SharedRing {
 public:
  // By the side that offers the ring. ResourceExhausted when there is no memory.
  static absl::StatusOr<std::unique_ptr<SharedRing>> Create(size_t lane_bytes = kRingLaneBytes);
  // By the side that got it. InvalidArgument when it is not sealed, or has no size that a ring can have.
  static absl::StatusOr<std::unique_ptr<SharedRing>> Join(UniqueFd fd, uint64_t bytes);

  int fd() const { return memory_.fd(); }  // To hand over; -1 on the side that got it.
  uint64_t bytes() const { return memory_.bytes(); }
  size_t lane_bytes() const { return lane_bytes_; }

  // How many bytes of `from` it took, or -1 and errno: EAGAIN when there is no room, EBADMSG when the peer's
  // position cannot be.
  int64_t Write(absl::Span<const iovec> from);
  // How many bytes came, or -1 and errno: EAGAIN when none are there, EBADMSG as above.
  int64_t Read(std::byte* to, size_t bytes);
  // Read would not say EAGAIN.
  bool Readable() const;
  // So much room that a writer that waits should go on: half of the lane. True also when Write would fail.
  bool HasRoom() const;

  // Whoever sleeps asks Readable after SetAsleep(true): what was written before may have gone without a wake.
  void SetAsleep(bool asleep);
  // Whoever waits asks HasRoom after it.
  void AwaitRoom();
  // The peer has taken a wake-up that was asked for here: it is on its way. True once for each; what is still
  // wanted has to be asked for again.
  bool SeesWakeTaken();
  // After Write: the reader sleeps and has to be woken. True once for each time it said so.
  bool TakeReaderWake();
  // After Read: the writer waits and has room by now.
  bool TakeWriterWake();

 private:
  // Lies in shared memory; each word has a cache line for itself, since each has one side that writes it
  // often.
  struct Lane {
    alignas(64) std::atomic<uint64_t> written;  // By the writer; bytes since the start.
    alignas(64) std::atomic<uint64_t> read;     // By the reader.
    alignas(64) std::atomic<uint32_t> reader_asleep;
    alignas(64) std::atomic<uint32_t> writer_waits;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  static constexpr size_t kHeadBytes = 4096;
  static_assert(2 * sizeof(Lane) <= kHeadBytes);

  SharedRing(MemoryRegion memory, size_t lane_bytes, int out_lane);
  void CopyIn(const std::byte* from, size_t bytes);

  MemoryRegion memory_;
  const size_t lane_bytes_;
  Lane& out_;
  Lane& in_;
  std::byte* const out_data_;
  const std::byte* const in_data_;
  uint64_t written_ = 0;    // Of out_, and not what stands there.
  uint64_t read_ = 0;       // Of in_.
  uint64_t seen_read_ = 0;  // Of the peer in out_, when it was last looked at.
  bool asleep_ = true;      // Whether reader_asleep of in_ was raised last, or lowered.
  bool waits_ = false;
};

}  // namespace cistern
