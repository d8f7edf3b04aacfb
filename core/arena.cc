#include "core/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace cistern {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// Linux 5.14; Debian 12's glibc headers know them, older ones may not.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

std::string Mebibytes(uint64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

// The number behind `label` in a file of "label number" lines, or the file's only number when label is empty.
uint64_t ReadNumber(const std::string& path, const std::string& label, uint64_t otherwise) {
  std::ifstream in(path);
  std::string word;
  while (in >> word) {
    if (!label.empty()) {
      if (word != label) continue;
      if (!(in >> word)) return otherwise;
    }
    uint64_t value = 0;
    return absl::SimpleAtoi(word, &value) ? value : otherwise;  // "max" is no limit.
  }
  return otherwise;
}

// What the process's cgroup (v2) has left; page cache that could be dropped counts as free.
uint64_t CgroupLeftBytes() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string folder = absl::StrCat("/sys/fs/cgroup", line.substr(3));
    const uint64_t limit = ReadNumber(folder + "/memory.max", "", kUnlimited);
    if (limit == kUnlimited) return kUnlimited;
    const uint64_t used = ReadNumber(folder + "/memory.current", "", 0);
    const uint64_t cache = ReadNumber(folder + "/memory.stat", "inactive_file", 0);
    const uint64_t held = used - std::min(used, cache);
    return limit - std::min(limit, held);
  }
  return kUnlimited;
}

// One access a page. Only where the kernel cannot populate a range itself.
void TouchPages(std::byte* from, size_t bytes, bool writable) {
  for (size_t at = 0; at < bytes; at += kPageBytes) {
    auto* word = reinterpret_cast<uint8_t*>(from + at);
    if (writable) {
      __atomic_fetch_or(word, uint8_t{0},
                        __ATOMIC_RELAXED);  // A write that changes nothing, even beside other writers.
    } else {
      (void)*const_cast<volatile uint8_t*>(word);
    }
  }
}

absl::Status ErrnoStatus(absl::StatusCode code, const std::string& what) {
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(errno)));
}

// Closes a descriptor unless it is released.
class FdHolder {
 public:
  explicit FdHolder(int fd) : fd_(fd) {}
  ~FdHolder() {
    if (fd_ >= 0) ::close(fd_);
  }
  FdHolder(const FdHolder&) = delete;
  FdHolder& operator=(const FdHolder&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Maps a shared file so that huge pages of it can be mapped as such: the kernel does that only where address
// and place in the file agree in their lower 21 bits. MAP_FAILED and errno as by mmap.
void* MapShared(int fd, size_t bytes, int protection) {
  if (bytes < kHugePageBytes) return ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  const size_t length = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  const size_t room = length + kHugePageBytes;
  void* const reserved = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* const begin = static_cast<std::byte*>(reserved);
  const size_t head = -reinterpret_cast<uintptr_t>(reserved) % kHugePageBytes;
  void* const data = ::mmap(begin + head, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, room);
    errno = error;
    return MAP_FAILED;
  }
  if (head != 0) ::munmap(begin, head);
  if (head != kHugePageBytes) ::munmap(begin + head + length, kHugePageBytes - head);
  return data;
}

bool Holds(const MemoryRegion& region, uint64_t address) {
  return address - reinterpret_cast<uintptr_t>(region.data()) < region.bytes();
}

}  // namespace

// Sum of the "ShmemPmdMapped" lines of the mappings that begin inside one of them.
uint64_t MemoryRegion::HugePageBytes(absl::Span<const MemoryRegion* const> regions) {
  uint64_t end = 0;
  for (const MemoryRegion* region : regions)
    end = std::max<uint64_t>(end, reinterpret_cast<uintptr_t>(region->data_) + region->bytes_);
  std::ifstream in("/proc/self/smaps");
  std::string line;
  bool inside = false;
  uint64_t kib = 0;
  while (std::getline(in, line)) {
    constexpr absl::string_view kLabel = "ShmemPmdMapped:";
    const size_t dash = line.find('-');
    uint64_t from = 0, of_mapping = 0;
    if (dash != std::string::npos && absl::SimpleHexAtoi(line.substr(0, dash), &from)) {
      if (from >= end) break;  // In order of address, and each costs the kernel a walk of its page tables.
      inside = std::any_of(regions.begin(), regions.end(),
                           [from](const MemoryRegion* region) { return Holds(*region, from); });
    } else if (inside && absl::StartsWith(line, kLabel) &&
               absl::SimpleAtoi(absl::StripSuffix(line.substr(kLabel.size()), " kB"), &of_mapping)) {
      kib += of_mapping;
    }
  }
  return kib << 10;
}

uint64_t AvailableMemoryBytes() {
  const uint64_t kib = ReadNumber("/proc/meminfo", "MemAvailable:", kUnlimited >> 10);
  return std::min(kib << 10, CgroupLeftBytes());
}

absl::StatusOr<MemoryRegion> MemoryRegion::Create(const char* name, size_t bytes, bool seal_future_write) {
  if (bytes == 0 || bytes > (size_t{1} << 46)) {
    return absl::InvalidArgumentError(absl::StrCat("memory region ", name, " of ", bytes, " bytes"));
  }
  bytes = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  // A memfd is not paid for until it is touched: asking now turns a later kill by the kernel into an error.
  const uint64_t available = AvailableMemoryBytes();
  if (available < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("memory region ", name, " needs ", Mebibytes(bytes),
                                                     ", this machine has ", Mebibytes(available),
                                                     " available"));
  }
  FdHolder fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted, absl::StrCat("memfd_create ", name));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("size ", name, " to ", Mebibytes(bytes)));
  }
  void* data = MapShared(fd.get(), bytes, PROT_READ | PROT_WRITE);
  if (data == MAP_FAILED) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("map ", name, ", ", Mebibytes(bytes)));
  }
  MemoryRegion region(static_cast<std::byte*>(data), bytes, fd.Release(), /*writable=*/true);
  // FUTURE_WRITE spares the mapping that exists already, so it has to come behind mmap; SEAL closes the list.
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (seal_future_write ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
  if (::fcntl(region.fd_, F_ADD_SEALS, seals) != 0) {
    return ErrnoStatus(absl::StatusCode::kInternal, absl::StrCat("seal ", name));
  }
  return region;
}

absl::StatusOr<MemoryRegion> MemoryRegion::MapPeer(int fd, size_t bytes, bool writable) {
  const FdHolder holder(fd);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return ErrnoStatus(absl::StatusCode::kInvalidArgument, "peer's descriptor is no memfd");
  if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    return absl::InvalidArgumentError("peer's memory is not sealed against shrinking and growing");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return ErrnoStatus(absl::StatusCode::kInvalidArgument, "size of peer's memory");
  if (bytes == 0 || static_cast<uint64_t>(info.st_size) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer's memory has ", info.st_size, " bytes where it announced ", bytes));
  }
  void* data = MapShared(fd, bytes, PROT_READ | (writable ? PROT_WRITE : 0));
  if (data == MAP_FAILED) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("map ", Mebibytes(bytes), " of a peer"));
  }
  return MemoryRegion(static_cast<std::byte*>(data), bytes, -1, writable);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      writable_(other.writable_) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this != &other) {
    Reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    fd_ = std::exchange(other.fd_, -1);
    writable_ = other.writable_;
  }
  return *this;
}

MemoryRegion::~MemoryRegion() { Reset(); }

void MemoryRegion::Reset() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

absl::Status MemoryRegion::Populate(size_t from, size_t bytes) {
  if (from > bytes_ || bytes > bytes_ - from)
    return absl::InvalidArgumentError("populate outside the region");
  if (bytes == 0) return absl::OkStatus();
  const size_t start = from & ~(kPageBytes - 1);
  const size_t length = from + bytes - start;
  const int advice = writable_ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int rc = 0;
  do {
    rc = ::madvise(data_ + start, length, advice);
  } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
  if (rc == 0) return absl::OkStatus();
  if (errno != EINVAL) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted, absl::StrCat("populate ", Mebibytes(length)));
  }
  TouchPages(data_ + start, length, writable_);
  return absl::OkStatus();
}

void MemoryRegion::PreferHugePages(size_t from, size_t bytes) {
  if (from > bytes_ || bytes > bytes_ - from) return;
  const size_t begin = (from + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  const size_t end = (from + bytes) & ~(kHugePageBytes - 1);
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_HUGEPAGE);  // A wish: no error to tell.
}

}  // namespace cistern
