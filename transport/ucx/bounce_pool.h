#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/arena.h"
#include "transport/ucx/registrations.h"

namespace cistern {

inline constexpr size_t kBounceBytes = size_t{512} << 10;  // One buffer.
inline constexpr uint32_t kBounceBuffersMax = 32;          // 16 MiB a transport.
inline constexpr size_t kSmallBounceBytes = 64;            // For trailers; as many as one buffer more holds.

// Registered buffers through which bytes come that are for memory the device does not know. They are copied
// out and checksummed in one pass, so the detour costs one read of a warm buffer. Also a safe landing place:
// what arrives late ends here, and not in memory that its owner has taken back.
//
// Owner: a transport. Thread: the owner's. Lifetime: shorter than `registrations`.
class BouncePool {
 public:
  static absl::StatusOr<std::unique_ptr<BouncePool>> Create(Registrations& registrations);
  ~BouncePool() { registrations_.Remove(memory_.data()); }
  BouncePool(const BouncePool&) = delete;
  BouncePool& operator=(const BouncePool&) = delete;

  // Null when all are taken.
  std::byte* Take() {
    if (free_.empty()) return nullptr;
    std::byte* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void Return(std::byte* buffer) { free_.push_back(buffer); }
  std::byte* TakeSmall() {
    if (free_small_.empty()) return nullptr;
    std::byte* buffer = free_small_.back();
    free_small_.pop_back();
    return buffer;
  }
  void ReturnSmall(std::byte* buffer) { free_small_.push_back(buffer); }
  size_t free() const { return free_.size(); }
  void* handle() const { return registration_->chunks[0].handle; }

 private:
  BouncePool(Registrations& registrations, MemoryRegion memory, const Registration* registration);
  Registrations& registrations_;
  MemoryRegion memory_;
  const Registration* registration_;
  std::vector<std::byte*> free_;
  std::vector<std::byte*> free_small_;
};

}  // namespace cistern
