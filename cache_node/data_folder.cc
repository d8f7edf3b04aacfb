#include "cache_node/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cache_node/disk/id_file.h"
#include "core/clock.h"
#include "core/hex.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

absl::Status Failed(const std::string& what, int error) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::strerror(error)));
}

constexpr Nanos kEndingOwnerMax = 10 * kSecond;  // What a killed owner may take to let go of the lock.
constexpr useconds_t kEndingOwnerPollUs = 5000;
// Whether a process is gone, or dead and not yet through with letting go: its first thread ends before the
// others, and before its files.
bool IsEnding(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string stat;
  if (pid.empty() || !std::getline(in, stat)) return !pid.empty();
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < stat.size() &&
         (stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X');
}

std::string OwnerOf(int lock_fd) {
  char owner[32] = {};
  const ssize_t read = ::pread(lock_fd, owner, sizeof(owner) - 1, 0);
  return std::string(
      absl::StripAsciiWhitespace(std::string(owner, read > 0 ? static_cast<size_t>(read) : 0)));
}

}  // namespace

absl::StatusOr<DataFolder> DataFolder::Open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("--data-dir ", path, ": ", error.message()));
  const std::string lock = path + "/lock";
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--data-dir ", path, ": ", lock, ": ",
                                                   std::strerror(errno),
                                                   "; be the user whose folder it is, or give another"));
  }
  DataFolder folder(path, fd);
  BootClock clock;
  const Nanos until = clock.Now() + kEndingOwnerMax;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Failed(lock, errno);
    const std::string pid = OwnerOf(fd);
    if (IsEnding(pid) && clock.Now() < until) {
      ::usleep(kEndingOwnerPollUs);
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat("--data-dir ", path, " is held by another cistern-node",
                                                      pid.empty() ? "" : absl::StrCat(", pid ", pid)));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Failed(lock, errno);
  }
  CISTERN_RETURN_IF_ERROR(folder.ReadIds());
  return folder;
}

DataFolder::DataFolder(DataFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      node_id_(std::move(other.node_id_)),
      cluster_(other.cluster_) {}

std::string DataFolder::place() const {
  std::string boot;
  struct stat lock {};
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot) || boot.empty() ||
      ::fstat(lock_fd_, &lock) != 0) {
    return {};
  }
  return absl::StrCat(boot, "/", lock.st_dev, ":", lock.st_ino);
}

DataFolder::~DataFolder() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

absl::Status DataFolder::ReadIds() {
  CISTERN_ASSIGN_OR_RETURN(const std::optional<std::string> node, ReadNodeId(path_));
  node_id_ = node.value_or("");
  CISTERN_ASSIGN_OR_RETURN(cluster_, ReadClusterId(path_));
  return absl::OkStatus();
}

absl::Status DataFolder::SetNodeId(const std::string& id) {
  if (node_id_ == id) return absl::OkStatus();
  if (!node_id_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("--data-dir ", path_, " belongs to node ", node_id_,
                                                      ", not to ", id, "; give --node-id ", node_id_,
                                                      " or another folder, or move this one away"));
  }
  CISTERN_RETURN_IF_ERROR(WriteNodeId(path_, id));
  node_id_ = id;
  return absl::OkStatus();
}

absl::Status DataFolder::SetCluster(const ClusterId& cluster) {
  if (cluster_ == cluster) return absl::OkStatus();
  if (cluster_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("--data-dir ", path_, " belongs to cluster ",
                                                      ToHex(*cluster_), ", not to ", ToHex(cluster),
                                                      "; give that cluster's --router, or another folder"));
  }
  CISTERN_RETURN_IF_ERROR(WriteClusterId(path_, cluster));
  cluster_ = cluster;
  return absl::OkStatus();
}

}  // namespace cistern
