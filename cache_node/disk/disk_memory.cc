#include "cache_node/disk/disk_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/arena.h"

namespace cistern {

absl::StatusOr<DiskMemory> DiskMemory::Create(size_t bytes) {
  // Room to begin at a huge page.
  const size_t mapped_bytes = bytes < kHugePageBytes ? bytes : bytes + kHugePageBytes;
  void* mapped = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes >> 20, " MiB of memory for the disk tier: ", std::strerror(errno)));
  }
  return DiskMemory(static_cast<std::byte*>(mapped), mapped_bytes, bytes);
}

DiskMemory::DiskMemory(std::byte* mapped, size_t mapped_bytes, size_t bytes)
    : mapped_(mapped), mapped_bytes_(mapped_bytes), data_(mapped), bytes_(bytes) {
  if (mapped_bytes_ == bytes_) return;
  data_ += (kHugePageBytes - reinterpret_cast<uintptr_t>(mapped_) % kHugePageBytes) % kHugePageBytes;
  ::madvise(data_, bytes_ / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);  // A wish: no error to tell.
}

DiskMemory::DiskMemory(DiskMemory&& other) noexcept
    : mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DiskMemory& DiskMemory::operator=(DiskMemory&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DiskMemory::~DiskMemory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

}  // namespace cistern
