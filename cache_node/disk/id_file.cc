#include "cache_node/disk/id_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/crc32c.h"
#include "core/hex.h"
#include "core/status_macros.h"
#include "proto/control.h"

namespace cistern {
namespace {

constexpr size_t kWrongIdShown = 16;
constexpr int kIdCopies = 16;  // One damaged spot must not cost a node its folder (F37).

absl::Status Failed(const std::string& what, int error) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::strerror(error)));
}

// One next step for both files: what a node is started with, and the router, say again what stood in them.
absl::Status Broken(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", why,
                   "; remove the file: the node's next start writes it anew, from --node-id and "
                   "from the router"));
}

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
  return Broken(path, lines == 0 ? "empty or unreadable" : "damaged");
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

std::string NodeIdFile(const std::string& dir) { return dir + "/node_id"; }
std::string ClusterIdFile(const std::string& dir) { return dir + "/cluster_id"; }

}  // namespace

absl::StatusOr<std::optional<std::string>> ReadNodeId(const std::string& dir) {
  CISTERN_ASSIGN_OR_RETURN(std::optional<std::string> id, ReadLine(NodeIdFile(dir)));
  if (id && !IsNodeId(*id))
    return Broken(NodeIdFile(dir),
                  absl::StrCat("\"", absl::CHexEscape(id->substr(0, kWrongIdShown)), "\" is no node id"));
  return id;
}

absl::StatusOr<std::optional<ClusterId>> ReadClusterId(const std::string& dir) {
  CISTERN_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadLine(ClusterIdFile(dir)));
  if (!text) return std::optional<ClusterId>();
  const std::optional<ClusterId> id = IdFromHex<ClusterId>(*text);
  if (!id) return Broken(ClusterIdFile(dir), absl::StrCat("not ", 2 * sizeof(ClusterId), " hex digits"));
  return id;
}

absl::Status WriteNodeId(const std::string& dir, const std::string& id) {
  return WriteLine(NodeIdFile(dir), id);
}

absl::Status WriteClusterId(const std::string& dir, const ClusterId& cluster) {
  return WriteLine(ClusterIdFile(dir), ToHex(cluster));
}

}  // namespace cistern
