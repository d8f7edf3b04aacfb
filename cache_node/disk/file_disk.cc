#include "cache_node/disk/file_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cache_node/disk/disk_memory.h"
#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr char kProbeName[] = "probe";
constexpr uint32_t kIdlePollsPerDrain = 64;

bool ParseName(const char* text, FileId& file) {
  unsigned int number = 0;
  char rest = 0;
  if (std::strlen(text) != 15 || std::sscanf(text, "extent-%8x%c", &number, &rest) != 1) return false;
  file = number;
  return true;
}

absl::Status Failed(const std::string& what, int error) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

std::string FileDisk::NameOf(FileId file) { return absl::StrFormat("extent-%08x", file); }

absl::StatusOr<std::unique_ptr<FileDisk>> FileDisk::Open(const std::string& folder, FileDiskOptions options) {
  std::unique_ptr<FileDisk> disk(new FileDisk(folder));
  CISTERN_RETURN_IF_ERROR(disk->Prepare(options));
  return disk;
}

FileDisk::FileDisk(std::string folder) : folder_(std::move(folder)) {}

FileDisk::~FileDisk() {
  threads_.reset();  // Ends what it has begun.
  // The kernel may still write into memory of ours: wait for it.
  while (ring_ != nullptr && on_ring_ > 0) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_submit_and_wait(ring_.get(), 1) < 0 && errno != EINTR) break;
    while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
      io_uring_cqe_seen(ring_.get(), cqe);
      --on_ring_;
    }
  }
  if (ring_ != nullptr) io_uring_queue_exit(ring_.get());
  for (const auto& [file, handle] : handles_) ::close(handle.fd);
  if (folder_fd_ >= 0) ::close(folder_fd_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

absl::Status FileDisk::Prepare(FileDiskOptions options) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(folder_, ": ", error.message()));
  folder_fd_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd_ < 0) return Failed(folder_, errno);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return Failed("eventfd", errno);
  rows_.resize(kDiskDepthMax);
  for (uint32_t i = kDiskDepthMax; i-- > 0;) free_rows_.push_back(i);
  if (options.direct) {
    ProbeDirect();
  } else {
    direct_ = false;
    why_not_direct_ = "not asked for";
  }
  if (options.uring) {
    StartRing();
  } else {
    why_not_uring_ = "not asked for";
  }
  threads_ = std::make_unique<IoThreads>(ring_ == nullptr ? kIoThreadsMax : 1, wake_fd_);
  return absl::OkStatus();
}

// Some file systems refuse O_DIRECT at open, some at the first write: both are tried.
void FileDisk::ProbeDirect() {
  const int fd =
      ::openat(folder_fd_, kProbeName, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_NOFOLLOW | O_CLOEXEC, 0600);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const absl::StatusOr<DiskMemory> page = DiskMemory::Create(kDiskAlign);
    if (page.ok() && ::pwrite(fd, page->data(), kDiskAlign, 0) != kDiskAlign && errno != ENOSPC)
      error = errno;
    ::close(fd);
  }
  ::unlinkat(folder_fd_, kProbeName, 0);
  if (error != EINVAL && error != EOPNOTSUPP) return;  // Anything else is not about O_DIRECT.
  direct_ = false;
  why_not_direct_ = absl::StrCat("the file system refuses O_DIRECT: ", std::strerror(error));
}

void FileDisk::StartRing() {
  ring_ = std::make_unique<io_uring>();
  int error = io_uring_queue_init(kDiskDepthMax * 2, ring_.get(), 0);
  unsigned workers[] = {kIoWorkersMax, kIoWorkersMax};
  if (error == 0)
    (void)io_uring_register_iowq_max_workers(ring_.get(), workers);  // A bound, where it is known.
  if (error == 0 && (error = io_uring_register_eventfd(ring_.get(), wake_fd_)) != 0)
    io_uring_queue_exit(ring_.get());
  if (error == 0) return;
  ring_.reset();
  why_not_uring_ = absl::StrCat("io_uring is refused: ", std::strerror(-error));
}

void FileDisk::RegisterMemory(Segment memory) {
  memory_ = memory;
  if (ring_ == nullptr) return;
  const iovec one = {.iov_base = memory.data, .iov_len = memory.bytes};
  const int error = io_uring_register_buffers(ring_.get(), &one, 1);
  fixed_ = error == 0;
  if (!fixed_) why_not_fixed_ = absl::StrCat(std::strerror(-error), error == -ENOMEM ? " (ulimit -l)" : "");
}

std::string FileDisk::Describe() const {
  std::string out =
      ring_ != nullptr ? "io_uring" : absl::StrCat(kIoThreadsMax, " threads (", why_not_uring_, ")");
  absl::StrAppend(&out, direct_ ? ", O_DIRECT" : absl::StrCat(", page cache (", why_not_direct_, ")"));
  if (fixed_) absl::StrAppend(&out, ", fixed buffers");
  if (!why_not_fixed_.empty()) absl::StrAppend(&out, ", no fixed buffers (", why_not_fixed_, ")");
  return out;
}

int FileDisk::Flags() const { return O_RDWR | O_NOFOLLOW | O_CLOEXEC | (direct_ ? O_DIRECT : 0); }

absl::StatusOr<std::vector<FileId>> FileDisk::List() {
  const int fd = ::openat(folder_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = fd < 0 ? nullptr : ::fdopendir(fd);
  if (dir == nullptr) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return Failed(folder_, error);
  }
  std::vector<FileId> files;
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    FileId file = 0;
    if (ParseName(entry->d_name, file)) files.push_back(file);
    errno = 0;
  }
  const int error = errno;
  ::closedir(dir);
  if (error != 0) return Failed(folder_, error);  // Half a listing is none (F38).
  std::sort(files.begin(), files.end());
  return files;
}

void FileDisk::CloseSome() {
  auto oldest = handles_.end();
  for (auto it = handles_.begin(); it != handles_.end(); ++it) {
    if (it->second.open_requests != 0) continue;
    if (oldest == handles_.end() || it->second.used_at < oldest->second.used_at) oldest = it;
  }
  if (oldest == handles_.end()) return;  // kDiskDepthMax requests cannot keep them all busy.
  ::close(oldest->second.fd);
  handles_.erase(oldest);
}

FileDisk::Handle* FileDisk::HandleOf(FileId file, int& error) {
  auto it = handles_.find(file);
  if (it == handles_.end()) {
    if (handles_.size() >= kOpenFilesMax) CloseSome();
    const int fd = ::openat(folder_fd_, NameOf(file).c_str(), Flags());
    if (fd < 0) {
      error = errno;
      return nullptr;
    }
    it = handles_.emplace(file, Handle{.fd = fd}).first;
  }
  it->second.used_at = ++uses_;
  return &it->second;
}

bool FileDisk::TrySubmit(const DiskRequest& request) {
  using Kind = DiskRequest::Kind;
  if (in_flight_ + failed_.size() >= kDiskDepthMax) return false;
  int error = 0;
  int fd = -1;
  if (request.kind == Kind::kRead || request.kind == Kind::kWrite || request.kind == Kind::kSync) {
    Handle* handle = HandleOf(request.file, error);
    if (handle == nullptr) {
      failed_.push_back({.cookie = request.cookie, .error = error});
      return true;
    }
    ++handle->open_requests;
    fd = handle->fd;
  } else if (const auto it = handles_.find(request.file);
             it != handles_.end() && it->second.open_requests == 0) {
    ::close(it->second.fd);  // It becomes another file, or none.
    handles_.erase(it);
  }
  ++in_flight_;
  if (fd < 0 || !PrepareOnRing(request, fd)) PostToThreads(request, fd);
  return true;
}

bool FileDisk::PrepareOnRing(const DiskRequest& request, int fd) {
  if (ring_ == nullptr) return false;
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  if (sqe == nullptr) return false;
  const bool in_memory =
      fixed_ && request.data >= memory_.data && request.data + request.bytes <= memory_.data + memory_.bytes;
  unsigned flags = 0;
  switch (request.kind) {
    case DiskRequest::Kind::kRead:
      if (in_memory) {
        io_uring_prep_read_fixed(sqe, fd, request.data, request.bytes, request.offset, 0);
      } else {
        io_uring_prep_read(sqe, fd, request.data, request.bytes, request.offset);
      }
      break;
    case DiskRequest::Kind::kWrite:
      if (in_memory) {
        io_uring_prep_write_fixed(sqe, fd, request.data, request.bytes, request.offset, 0);
      } else {
        io_uring_prep_write(sqe, fd, request.data, request.bytes, request.offset);
      }
      // A write into space that was promised and never written, or of a file that is being synced, is held up
      // by the file system while it is submitted: for 75 to 215 us of one MiB, in which no hit was answered.
      // The kernel's workers submit it.
      flags = IOSQE_ASYNC;
      break;
    default:
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
      break;
  }
  io_uring_sqe_set_flags(sqe, flags);
  const uint32_t row = free_rows_.back();
  free_rows_.pop_back();
  rows_[row] = request;
  io_uring_sqe_set_data64(sqe, row);
  ++unsubmitted_;
  ++on_ring_;
  return true;
}

void FileDisk::PostToThreads(const DiskRequest& request, int fd) {
  using Kind = DiskRequest::Kind;
  const uint32_t row = free_rows_.back();
  free_rows_.pop_back();
  rows_[row] = request;
  DiskRequest copy = request;
  copy.cookie = row;
  threads_->Post([this, copy, fd]() -> DiskDone {
    if (copy.kind == Kind::kCreate) return CreateFile(copy);
    ssize_t result = 0;
    if (copy.kind == Kind::kRemove) {
      result = ::unlinkat(folder_fd_, NameOf(copy.file).c_str(), 0) == 0 ? ::fsync(folder_fd_) : -1;
    } else if (copy.kind == Kind::kSync) {
      result = ::fdatasync(fd);
    } else if (copy.kind == Kind::kRead) {
      result = ::pread(fd, copy.data, copy.bytes, static_cast<off_t>(copy.offset));
    } else {
      result = ::pwrite(fd, copy.data, copy.bytes, static_cast<off_t>(copy.offset));
    }
    return {.cookie = copy.cookie,
            .error = result < 0 ? errno : 0,
            .bytes = result < 0 ? 0 : static_cast<uint32_t>(result)};
  });
}

DiskDone FileDisk::CreateFile(const DiskRequest& request) const {
  const int fd = ::openat(folder_fd_, NameOf(request.file).c_str(), Flags() | O_CREAT, 0600);
  if (fd < 0) return {.cookie = request.cookie, .error = errno};
  int error = ::fallocate(fd, 0, 0, request.bytes) == 0 ? 0 : errno;
  // Without fallocate the space is not promised, and a later write may fail with ENOSPC: which is survived
  // too.
  if (error == EOPNOTSUPP) error = ::ftruncate(fd, request.bytes) == 0 ? 0 : errno;
  if (error == 0 && (::fsync(fd) != 0 || ::fsync(folder_fd_) != 0)) error = errno;
  ::close(fd);
  if (error != 0) ::unlinkat(folder_fd_, NameOf(request.file).c_str(), 0);
  return {.cookie = request.cookie, .error = error};
}

bool FileDisk::Poll(std::vector<DiskDone>& done) {
  const size_t before = done.size();
  done.insert(done.end(), failed_.begin(), failed_.end());
  failed_.clear();
  ended_.clear();
  // Before looking, so that no end comes between and leaves no signal. One that was seen without its signal
  // leaves that behind, to wake a sleeper for nothing: drained now and then also when nothing is found.
  if (drain_due_ || ++idle_polls_ % kIdlePollsPerDrain == 0) {
    uint64_t signals = 0;
    if (::read(wake_fd_, &signals, sizeof(signals)) < 0) idle_polls_ = 0;
  }
  if (ring_ != nullptr) {
    if (unsubmitted_ > 0) {
      const int submitted = io_uring_submit(ring_.get());
      if (submitted > 0) unsubmitted_ -= std::min(unsubmitted_, static_cast<uint32_t>(submitted));
    }
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
      const int result = cqe->res;
      ended_.push_back({.cookie = io_uring_cqe_get_data64(cqe),
                        .error = result < 0 ? -result : 0,
                        .bytes = result < 0 ? 0 : static_cast<uint32_t>(result)});
      io_uring_cqe_seen(ring_.get(), cqe);
      --on_ring_;
    }
  }
  if (in_flight_ > ended_.size() + on_ring_) threads_->Take(ended_);
  for (DiskDone one : ended_) {
    const auto row = static_cast<uint32_t>(one.cookie);
    if (const auto it = handles_.find(rows_[row].file);
        it != handles_.end() && it->second.open_requests > 0) {
      const auto kind = rows_[row].kind;
      if (kind != DiskRequest::Kind::kCreate && kind != DiskRequest::Kind::kRemove)
        --it->second.open_requests;
    }
    one.cookie = rows_[row].cookie;
    free_rows_.push_back(row);
    --in_flight_;
    done.push_back(one);
  }
  drain_due_ = done.size() != before;
  return drain_due_;
}

absl::Status FileDisk::ReadNow(FileId file, uint64_t offset, std::byte* data, uint32_t bytes) {
  int error = 0;
  const Handle* handle = HandleOf(file, error);
  if (handle == nullptr) return absl::DataLossError(absl::StrCat("open: ", std::strerror(error)));
  for (uint32_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(handle->fd, data + at, bytes - at, static_cast<off_t>(offset + at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(absl::StrCat("read: ", std::strerror(errno)));
    const auto whole = static_cast<uint32_t>(got) / kDiskAlign * kDiskAlign;
    if (whole == 0) return absl::OutOfRangeError("the file ends before");
    at += whole;
  }
  return absl::OkStatus();
}

}  // namespace cistern
