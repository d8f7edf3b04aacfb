#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/host_port.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr int kListenBacklog = 256;

absl::Status Malformed(const std::string& text, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address \"", text, "\": ", why, "; want tcp:HOST:PORT or unix:NAME"));
}

std::string TcpText(const sockaddr_storage& raw) {
  char host[INET6_ADDRSTRLEN] = {};
  if (raw.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(raw);
    inet_ntop(AF_INET, &in.sin_addr, host, sizeof(host));
    return "tcp:" + HostPort{host, ntohs(in.sin_port)}.ToString();
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(raw);
  inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host));
  return "tcp:" + HostPort{host, ntohs(in6.sin6_port)}.ToString();
}

bool SameHost(const sockaddr& a, const sockaddr_storage& b) {
  if (a.sa_family != b.ss_family) return false;
  if (a.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  if (a.sa_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return false;
}

}  // namespace

absl::StatusOr<SocketAddress> SocketAddress::Parse(const std::string& text) {
  SocketAddress address;
  address.text_ = text;
  if (text.starts_with("unix:")) {
    const std::string name = text.substr(5);
    auto& un = reinterpret_cast<sockaddr_un&>(address.raw_);
    if (name.empty() || name.size() >= sizeof(un.sun_path)) return Malformed(text, "bad length of the name");
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, name.data(), name.size());  // The leading NUL makes it abstract.
    address.raw_bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
  }
  if (!text.starts_with("tcp:")) return Malformed(text, "unknown kind");
  CISTERN_ASSIGN_OR_RETURN(const HostPort at,
                           ParseHostPort(std::string_view(text).substr(4), PortZero::kAnyFree));
  const std::string host = at.host == "localhost" ? "127.0.0.1" : at.host;
  auto& in = reinterpret_cast<sockaddr_in&>(address.raw_);
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) == 1) {
    in.sin_family = AF_INET;
    in.sin_port = htons(at.port);
    address.raw_bytes_ = sizeof(in);
    return address;
  }
  auto& in6 = reinterpret_cast<sockaddr_in6&>(address.raw_);
  if (inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) == 1) {
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(at.port);
    address.raw_bytes_ = sizeof(in6);
    return address;
  }
  return Malformed(text, "host is not a numeric address");
}

std::string SocketAddress::FromRaw(const sockaddr_storage& raw) { return TcpText(raw); }

absl::StatusOr<UniqueFd> SocketAddress::Open() const {
  UniqueFd fd(socket(raw_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("socket for ", text_));
  return fd;
}

absl::StatusOr<UniqueFd> SocketAddress::Listen() const {
  absl::StatusOr<UniqueFd> fd = Open();
  if (!fd.ok()) return fd;
  const int one = 1;
  if (!is_unix()) setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&raw_), raw_bytes_) != 0 ||
      listen(fd->get(), kListenBacklog) != 0) {
    if (errno == EADDRINUSE) return absl::UnavailableError(absl::StrCat(text_, " is in use"));
    return absl::ErrnoToStatus(errno, absl::StrCat("listen on ", text_));
  }
  return fd;
}

absl::StatusOr<UniqueFd> SocketAddress::Connect() const {
  absl::StatusOr<UniqueFd> fd = Open();
  if (!fd.ok()) return fd;
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&raw_), raw_bytes_) != 0 && errno != EINPROGRESS) {
    return absl::UnavailableError(absl::StrCat("connect to ", text_, ": ", std::strerror(errno)));
  }
  return fd;
}

absl::StatusOr<std::string> BoundAddress(int fd) {
  sockaddr_storage raw{};
  socklen_t bytes = sizeof(raw);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &bytes) != 0) {
    return absl::ErrnoToStatus(errno, "getsockname");
  }
  if (raw.ss_family != AF_UNIX) return TcpText(raw);
  const auto& un = reinterpret_cast<const sockaddr_un&>(raw);
  const size_t before = offsetof(sockaddr_un, sun_path) + 1;
  return "unix:" + (bytes > before ? std::string(un.sun_path + 1, bytes - before) : std::string());
}

void TuneTcp(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  sockaddr_storage mine{}, theirs{};
  socklen_t bytes = sizeof(mine), their_bytes = sizeof(theirs);
  const bool known = getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &bytes) == 0 &&
                     getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &their_bytes) == 0;
  if (known && SameHost(reinterpret_cast<const sockaddr&>(mine), theirs)) {
    constexpr char kUnpaced[] = "reno";
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced, sizeof(kUnpaced) - 1);
    // A low-water mark makes room for itself and lets the room go on growing, which SO_RCVBUF would end.
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &kSameHostWindowBytes, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
  }
}

std::string DeviceOf(int fd) {
  sockaddr_storage raw{};
  socklen_t bytes = sizeof(raw);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &bytes) != 0) return "unknown";
  if (raw.ss_family == AF_UNIX) return "unix";
  const auto& in = reinterpret_cast<const sockaddr_in&>(raw);
  if (raw.ss_family == AF_INET && ntohl(in.sin_addr.s_addr) >> 24 == 127) return "lo";
  std::string device = "unknown";
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return device;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr != nullptr && SameHost(*at->ifa_addr, raw)) {
      device = at->ifa_name;
      break;
    }
  }
  freeifaddrs(all);
  return device;
}

int64_t PeerUid(int fd) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return -1;
  return credentials.uid;
}

}  // namespace cistern
