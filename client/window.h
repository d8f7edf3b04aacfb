#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/arena.h"

namespace cistern {

// Chunks through which stores from ordinary memory reach nodes on this host.
inline constexpr size_t kStagingChunkBytes = size_t{4} << 20;
inline constexpr size_t kStagingChunks = 4;
inline constexpr size_t kWindowAlignment = 4096;
inline constexpr size_t kWindowBytesMax = size_t{1} << 40;

// The client's put window: one memfd that nodes on this host map read-only and pull stores from (DESIGN §5).
// Its front is handed out by AllocateBuffer, its end is kStagingChunks chunks for stores from other memory;
// both are fixed at creation, so buffers of callers are never registered one by one and nothing grows with
// their number (F59). Owner: the facade. Thread: the core's (under the facade's lock). Outlives the
// transport.
class PutWindow {
 public:
  // `bytes` for AllocateBuffer; the staging chunks come on top.
  static absl::StatusOr<PutWindow> Create(size_t bytes);

  const MemoryRegion& region() const { return region_; }

  // Null when there is no room. Aligned to kWindowAlignment. First fit; neighbours are joined again when
  // freed.
  void* Allocate(size_t bytes);
  // False: not a buffer of this window.
  bool Free(void* buffer);
  size_t allocations() const { return used_.size(); }
  size_t allocated_bytes() const { return allocated_bytes_; }
  // Offset in the region when [data, data + bytes) lies in the part that Allocate hands out.
  std::optional<uint64_t> OffsetOf(const void* data, size_t bytes) const;

  // A chunk of kStagingChunkBytes, or nothing when all are taken.
  std::optional<uint32_t> TakeChunk();
  void ReturnChunk(uint32_t chunk);
  std::byte* ChunkData(uint32_t chunk) { return region_.data() + ChunkOffset(chunk); }
  uint64_t ChunkOffset(uint32_t chunk) const { return buffers_bytes_ + uint64_t{chunk} * kStagingChunkBytes; }
  size_t free_chunks() const { return chunks_.size(); }

 private:
  PutWindow(MemoryRegion region, size_t buffers_bytes);

  MemoryRegion region_;
  size_t buffers_bytes_;
  size_t allocated_bytes_ = 0;
  std::map<uint64_t, uint64_t> free_;  // Offset to length; no two touch.
  std::map<uint64_t, uint64_t> used_;
  std::vector<uint32_t> chunks_;  // Free ones; last returned is taken first, it is warm in the cache.
};

}  // namespace cistern
