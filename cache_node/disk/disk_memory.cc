#include "cache_node/disk/disk_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cistern {

absl::StatusOr<DiskMemory> DiskMemory::Create(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes >> 20, " MiB of memory for the disk tier: ", std::strerror(errno)));
  }
  return DiskMemory(static_cast<std::byte*>(data), bytes);
}

DiskMemory::DiskMemory(DiskMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DiskMemory& DiskMemory::operator=(DiskMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DiskMemory::~DiskMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace cistern
