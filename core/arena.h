#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace cistern {

// One region of host memory in a memfd that cannot shrink, grow or gain another writer once sealed. Unmaps and closes at destruction.
class MemoryRegion {
 public:
  // Shared memory of `bytes` (rounded up to 4 KiB). With `seal_future_write` nobody but this mapping can ever write it
  // (arenas); without it both sides may (a client's put window, which the client writes and the node maps read-only).
  // ResourceExhausted with the numbers when the machine has too little memory.
  static absl::StatusOr<MemoryRegion> Create(const char* name, size_t bytes, bool seal_future_write);
  // Maps a memfd that a peer handed over, read-only. Takes `fd`. InvalidArgument when it is not sealed against shrinking
  // and growing (a shrunk map is a SIGBUS), or its size is not `bytes`.
  static absl::StatusOr<MemoryRegion> MapPeer(int fd, size_t bytes);

  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  // Touches every page of [from, from + bytes) so that later writes do not fault.
  void Prefault(size_t from, size_t bytes);

 private:
  MemoryRegion(std::byte* data, size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;
};

// What stands beside each slot in its arena: enough to check a copied part without asking the node again.
// generation is odd while the slot is being written or free, even while it holds a visible part.
struct SlotTrailer {
  uint64_t generation;
  uint64_t fingerprint;
  uint8_t hash[32];
  uint32_t coord;
  uint32_t length;
  uint32_t crc;
  uint32_t reserved;
};
static_assert(sizeof(SlotTrailer) == 64);

}  // namespace cistern
