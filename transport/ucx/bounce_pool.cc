#include "transport/ucx/bounce_pool.h"

#include <utility>

#include "core/status_macros.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<BouncePool>> BouncePool::Create(Registrations& registrations) {
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion memory,
                           MemoryRegion::Create("cistern-bounce", kBounceBytes * (kBounceBuffersMax + 1),
                                                /*seal_future_write=*/false));
  CISTERN_ASSIGN_OR_RETURN(const Registration* registration,
                           registrations.Add(memory.data(), memory.bytes(), kBounceBytes));
  return std::unique_ptr<BouncePool>(new BouncePool(registrations, std::move(memory), registration));
}

BouncePool::BouncePool(Registrations& registrations, MemoryRegion memory, const Registration* registration)
    : registrations_(registrations), memory_(std::move(memory)), registration_(registration) {
  for (uint32_t i = kBounceBuffersMax; i-- > 0;) free_.push_back(memory_.data() + i * kBounceBytes);
  std::byte* small = memory_.data() + kBounceBytes * kBounceBuffersMax;
  for (size_t at = kBounceBytes; at > 0; at -= kSmallBounceBytes) {
    free_small_.push_back(small + at - kSmallBounceBytes);
  }
}

}  // namespace cistern
