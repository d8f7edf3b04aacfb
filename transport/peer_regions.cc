#include "transport/peer_regions.h"

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

// offset + bytes may not wrap: everything is compared by subtraction in 64 bits (F36).
bool IsInside(const MemoryRegion& memory, uint64_t offset, uint64_t bytes) {
  return bytes <= memory.bytes() && offset <= memory.bytes() - bytes;
}

SlotTrailer ReadTrailer(const std::byte* from) {
  SlotTrailer trailer;
  std::atomic_thread_fence(std::memory_order_acquire);  // The part's bytes were read before.
  std::memcpy(&trailer, from, sizeof(trailer));
  std::atomic_thread_fence(std::memory_order_acquire);
  static_assert(offsetof(SlotTrailer, generation) == 0);
  trailer.generation = __atomic_load_n(reinterpret_cast<const uint64_t*>(from), __ATOMIC_ACQUIRE);
  return trailer;
}

}  // namespace

absl::Status PeerRegions::Map(const std::vector<RegionInfo>& infos, std::vector<UniqueFd> fds) {
  if (infos.size() != fds.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(infos.size(), " regions announced, ", fds.size(), " descriptors came"));
  }
  std::vector<Region> regions;
  for (size_t i = 0; i < infos.size(); ++i) {
    for (const Region& other : regions) {
      if (other.id == infos[i].id)
        return absl::InvalidArgumentError(absl::StrCat("region ", infos[i].id, " twice"));
    }
    absl::StatusOr<MemoryRegion> memory = MemoryRegion::MapPeer(fds[i].Release(), infos[i].bytes);
    if (!memory.ok()) return memory.status();
    regions.push_back({infos[i].id, *std::move(memory)});
  }
  regions_ = std::move(regions);
  return absl::OkStatus();
}

std::vector<ConstSegment> PeerRegions::AsSegments() const {
  std::vector<ConstSegment> segments;
  for (const Region& region : regions_) segments.push_back({region.memory.data(), region.memory.bytes()});
  return segments;
}

PullResult PeerRegions::Pull(const PullRequest& request) const {
  PullResult result;
  result.result = PartResult::kInvalid;
  const Region* region = nullptr;
  for (const Region& candidate : regions_) {
    if (candidate.id == request.region) region = &candidate;
  }
  if (region == nullptr || !IsInside(region->memory, request.offset, request.bytes)) return result;
  const bool wants_trailer = request.trailer_offset != 0;
  if (wants_trailer && (request.trailer_offset % alignof(SlotTrailer) != 0 ||
                        !IsInside(region->memory, request.trailer_offset, sizeof(SlotTrailer)))) {
    return result;
  }
  uint64_t room = 0;
  for (const Segment& segment : request.target) room += segment.bytes;
  if (room != request.bytes) return result;

  // Read behind the copy, when it would be waited for.
  if (wants_trailer) __builtin_prefetch(region->memory.data() + request.trailer_offset);
  const std::byte* from = region->memory.data() + request.offset;
  // Where the memory is read next: the part's next bytes, and behind its last the next part.
  const std::byte* next_part = nullptr;
  if (request.next_offset != 0 && request.next_offset < region->memory.bytes())
    next_part = region->memory.data() + request.next_offset;
  for (const Segment& segment : request.target) {
    const std::byte* to = from + segment.bytes;
    const bool is_last = &segment == &request.target.back();
    result.crc = CopyCrc32c(segment.data, from, segment.bytes, result.crc, is_last ? next_part : to);
    from = to;
  }
  if (wants_trailer) result.trailer = ReadTrailer(region->memory.data() + request.trailer_offset);
  result.result = PartResult::kOk;
  return result;
}

}  // namespace cistern
