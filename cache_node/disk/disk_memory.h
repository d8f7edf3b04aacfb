#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "core/bytes.h"

namespace cistern {

// Page-aligned memory for disk requests; touched only where it is used. In huge pages where there is more
// than one and the kernel has them: a request of 1 MiB is one piece for the device then, not 256, and handed
// to it in as much less time. Frees itself.
class DiskMemory {
 public:
  // ResourceExhausted with the number when there is none.
  static absl::StatusOr<DiskMemory> Create(size_t bytes);
  DiskMemory(DiskMemory&& other) noexcept;
  DiskMemory& operator=(DiskMemory&& other) noexcept;
  ~DiskMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Segment segment() const { return {.data = data_, .bytes = bytes_}; }

 private:
  DiskMemory(std::byte* mapped, size_t mapped_bytes, size_t bytes);
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace cistern
