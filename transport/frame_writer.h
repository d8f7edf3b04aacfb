#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "transport/shared_ring.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr size_t kSendQueueChunksMax =
    2 * kPartsPerRequestMax;                             // Payload segments of frames that wait.
inline constexpr size_t kWriteBurstBytesMax = 4u << 20;  // One peer's share of one round.

// What waits to be written to one connection: headers and bodies in one buffer of its own, payloads where
// they lie. Owner: one SocketPeer. Thread: the transport's. Does not allocate once its buffers have grown.
class FrameWriter {
 public:
  enum class Outcome : uint8_t {
    kDrained,  // Nothing waits.
    kBlocked,  // The socket or the ring is full.
    kMore,     // The burst is used up.
    kBroken,   // error() says why.
  };

  // ResourceExhausted when a bound is reached, InvalidArgument when the frame breaks a limit; nothing is
  // queued then.
  absl::Status Push(const OutFrame& frame, uint8_t version);
  // These ride with the first byte still to be written; only for a handshake frame, on a unix socket.
  // Borrowed until then.
  void AttachFds(std::vector<int> fds) { fds_ = std::move(fds); }
  // From here on frames go into `ring` (borrowed) and not to `fd`.
  void UseRing(SharedRing* ring) { ring_ = ring; }
  // Writes what the socket or the ring takes. Adds the cookies of frames that are wholly taken to `sent`,
  // which has room for frames(): what is written and not counted would be written once more.
  Outcome Write(int fd, std::vector<uint64_t>& sent);

  bool empty() const { return first_ == chunks_.size(); }
  size_t frames() const { return frames_; }  // Waiting.
  // Bytes written since the start; tells whether the peer takes anything.
  uint64_t written_bytes() const { return written_bytes_; }
  const absl::Status& error() const { return error_; }

 private:
  struct Chunk {
    const std::byte* data = nullptr;  // Null: in heads_, from head_offset.
    size_t head_offset = 0;
    size_t bytes = 0;
    size_t frame_bytes = 0;  // Of header and body, on the last chunk of a frame; 0 elsewhere.
    uint64_t cookie = 0;     // On the last chunk of a frame.
  };

  int64_t SendSome(int fd, size_t& asked);
  void Consume(size_t bytes, std::vector<uint64_t>& sent);
  void Compact();

  Bytes heads_;
  std::vector<Chunk> chunks_;
  size_t first_ = 0;       // First chunk that is not wholly written.
  size_t first_done_ = 0;  // Bytes of it that are.
  size_t frames_ = 0;      // Waiting.
  size_t head_bytes_ = 0;  // Of frames waiting.
  std::vector<int> fds_;
  SharedRing* ring_ = nullptr;
  uint64_t written_bytes_ = 0;
  absl::Status error_;
};

}  // namespace cistern
