#include "cache_node/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/hex.h"
#include "core/status_macros.h"
#include "proto/control.h"

namespace cistern {
namespace {

absl::Status Failed(const std::string& what, int error) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::strerror(error)));
}

constexpr Nanos kEndingOwnerMax = 10 * kSecond;  // What a killed owner may take to let go of the lock.
constexpr useconds_t kEndingOwnerPollUs = 5000;
constexpr int kIdCopies = 16;  // One damaged spot must not cost a node its folder (F37).

std::string WithChecksum(const std::string& line) {
  return absl::StrCat(line, " ", absl::Hex(Crc32c(line.data(), line.size()), absl::kZeroPad8));
}

// What the file says: its first line that agrees with its checksum, or its only line where that has none, as
// older nodes wrote it. Nothing when there is no such file.
absl::StatusOr<std::optional<std::string>> ReadLine(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::optional<std::string>();
  std::ifstream in(path);
  std::string line, only;
  int lines = 0;
  for (; lines < 2 * kIdCopies && std::getline(in, line); ++lines) {
    line = std::string(absl::StripAsciiWhitespace(line));
    const size_t space = line.rfind(' ');
    if (space != std::string::npos && WithChecksum(line.substr(0, space)) == line) {
      return std::optional<std::string>(line.substr(0, space));
    }
    only = line;
  }
  if (lines == 1) return std::optional<std::string>(only);
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", lines == 0 ? "empty or unreadable" : "damaged"));
}

// Whole or not at all, also across a crash.
absl::Status WriteLine(const std::string& path, const std::string& line) {
  const std::string part = path + ".part";
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Failed(part, errno);
  std::string text;
  for (int i = 0; i < kIdCopies; ++i) absl::StrAppend(&text, WithChecksum(line), "\n");
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  if (!written) return Failed(part, error);
  if (std::rename(part.c_str(), path.c_str()) != 0) return Failed(path, errno);
  return absl::OkStatus();
}

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
  if (fd < 0) return Failed(lock, errno);
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

DataFolder::~DataFolder() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

absl::Status DataFolder::ReadIds() {
  CISTERN_ASSIGN_OR_RETURN(const std::optional<std::string> node, ReadLine(path_ + "/node_id"));
  if (node.has_value()) {
    if (!IsNodeId(*node))
      return absl::InvalidArgumentError(absl::StrCat(path_, "/node_id: \"", *node, "\" is no node id"));
    node_id_ = *node;
  }
  CISTERN_ASSIGN_OR_RETURN(const std::optional<std::string> cluster, ReadLine(path_ + "/cluster_id"));
  if (!cluster.has_value()) return absl::OkStatus();
  cluster_ = IdFromHex<ClusterId>(*cluster);
  if (!cluster_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, "/cluster_id: not ", 2 * sizeof(ClusterId), " hex digits"));
  }
  return absl::OkStatus();
}

absl::Status DataFolder::SetNodeId(const std::string& id) {
  if (node_id_ == id) return absl::OkStatus();
  if (!node_id_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--data-dir ", path_, " belongs to node ", node_id_, ", not to ", id));
  }
  CISTERN_RETURN_IF_ERROR(WriteLine(path_ + "/node_id", id));
  node_id_ = id;
  return absl::OkStatus();
}

absl::Status DataFolder::SetCluster(const ClusterId& cluster) {
  if (cluster_ == cluster) return absl::OkStatus();
  if (cluster_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("--data-dir ", path_, " belongs to cluster ",
                                                      ToHex(*cluster_), ", not to ", ToHex(cluster)));
  }
  CISTERN_RETURN_IF_ERROR(WriteLine(path_ + "/cluster_id", ToHex(cluster)));
  cluster_ = cluster;
  return absl::OkStatus();
}

}  // namespace cistern
