#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cistern {

// What pins memory for the network device. The real one is UcxContext; tests have their own.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // A handle for [data, data + bytes). ResourceExhausted when the device or the lock limit has no room.
  virtual absl::StatusOr<void*> Register(std::byte* data, size_t bytes) = 0;
  virtual void Unregister(void* handle) = 0;
};

struct RegistrationLimits {
  size_t chunk_bytes_max = size_t{2} << 30;  // One registration; devices and drivers have a limit.
  size_t total_bytes_max = SIZE_MAX;         // All together.
  uint32_t chunks_max = 4096;                // Entries of the device's table that we may take.
};

// How a region is cut for registration: pieces of whole `grain`s (a slab, so that no part is cut, and a
// multiple of the page size), each at most chunk_bytes_max, all but the last of one size, together the
// region. InvalidArgument when a grain does not fit a piece or the region does not begin on a page.
struct RegionPlan {
  size_t chunk_bytes = 0;
  uint32_t chunks = 0;
};
absl::StatusOr<RegionPlan> PlanRegion(const std::byte* data, size_t bytes, size_t page_bytes, size_t grain,
                                      const RegistrationLimits& limits);

// A region that is registered, whole.
struct Registration {
  struct Chunk {
    std::byte* data = nullptr;
    size_t bytes = 0;
    void* handle = nullptr;
  };
  std::byte* data = nullptr;
  size_t bytes = 0;
  size_t chunk_bytes = 0;
  std::vector<Chunk> chunks;
  uint32_t users = 0;

  // The chunk that [at, at + n) lies in; null when it lies in none alone.
  const Chunk* Find(const std::byte* at, size_t n) const;
};

// The memory of one process that a device may reach: arenas, put windows, bounce buffers, buffers that a
// caller registered himself. Nothing gets in by use alone, so it cannot grow with the number of buffers
// (F59), and memory that was freed and mapped anew is never taken for the old one.
//
// Owner: a transport. Thread: the owner's. The registrar outlives it; the destructor undoes what is left.
class Registrations {
 public:
  Registrations(Registrar& registrar, const RegistrationLimits& limits)
      : registrar_(registrar), limits_(limits) {}
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // Registers a region, or takes part in the registration that it has already. On an error nothing is left of
  // it; the message has the numbers, and the lock limit where that is what is too small.
  absl::StatusOr<const Registration*> Add(std::byte* data, size_t bytes, size_t grain);
  // Undoes one Add; unregisters with the last.
  void Remove(const std::byte* data);
  // The registration that [at, at + n) lies in; null: none.
  const Registration* Find(const std::byte* at, size_t n) const;

  size_t bytes() const { return bytes_; }
  uint32_t chunks() const { return chunks_; }

 private:
  void Undo(Registration& registration);

  Registrar& registrar_;
  const RegistrationLimits limits_;
  std::vector<std::unique_ptr<Registration>> all_;  // By address; no two overlap.
  size_t bytes_ = 0;
  uint32_t chunks_ = 0;
};

// RLIMIT_MEMLOCK of this process; SIZE_MAX when there is none.
size_t LockedMemoryLimit();

}  // namespace cistern
