#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cistern {

inline constexpr size_t kHugePageBytes = 2u << 20;  // Of x86-64 and of arm64 with 4 KiB pages.

// One region of host memory in a memfd that cannot shrink, grow or gain another writer once sealed. Unmaps
// and closes at destruction. Owned by a shard (arenas) or a client (put window); moved, never shared.
class MemoryRegion {
 public:
  // Shared memory of `bytes` (rounded up to 4 KiB). With `seal_future_write` nobody but this mapping can ever
  // write it (arenas); without it both sides may (a client's put window, which the client writes and the node
  // maps read-only). ResourceExhausted with the numbers when the machine has too little memory.
  static absl::StatusOr<MemoryRegion> Create(const char* name, size_t bytes, bool seal_future_write);
  // Maps a memfd that a peer handed over, read-only unless said otherwise. Takes `fd` (closed once mapped,
  // also on error). InvalidArgument when it is not sealed against shrinking and growing (a shrunk map is a
  // SIGBUS), or its size is not `bytes`.
  static absl::StatusOr<MemoryRegion> MapPeer(int fd, size_t bytes, bool writable = false);

  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // To hand over to a peer; -1 for a region that came from one.
  int fd() const { return fd_; }
  // Touches every page of [from, from + bytes) so that later accesses do not fault. Contents stay.
  // ResourceExhausted when the memory is not there after all; InvalidArgument outside the region.
  absl::Status Populate(size_t from, size_t bytes);
  // The same, best effort.
  void Prefault(size_t from, size_t bytes) { Populate(from, bytes).IgnoreError(); }
  // Asks for huge pages under the whole huge pages of [from, from + bytes), before they are touched: a reader
  // that maps the region needs 1/512 of the page tables and misses its TLB less. The kernel decides; where it
  // has none to give, pages are of 4 KiB.
  void PreferHugePages(size_t from, size_t bytes);
  // Bytes of these regions that this process sees through huge pages at present. Reads /proc, where the
  // kernel walks the page tables of all mappings below the last one's end: once for all regions, and not for
  // hot paths.
  static uint64_t HugePageBytes(absl::Span<const MemoryRegion* const> regions);
  uint64_t HugePageBytes() const {
    const MemoryRegion* const one = this;
    return HugePageBytes({&one, 1});
  }

 private:
  MemoryRegion(std::byte* data, size_t bytes, int fd, bool writable)
      : data_(data), bytes_(bytes), fd_(fd), writable_(writable) {}
  void Reset();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;
  bool writable_ = false;
};

// Bytes this process may still take without pushing the machine, or the memory cgroup it runs in, out of
// memory: the smaller of MemAvailable and what the cgroup has left.
uint64_t AvailableMemoryBytes();

// What stands in the trailer table of an arena for each slot: enough to check a copied part without asking
// the node again. generation is odd while the slot is being written or free, even while it holds a visible
// part.
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
