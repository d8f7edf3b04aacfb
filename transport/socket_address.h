#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "transport/unique_fd.h"

namespace cistern {

// Where a socket listens or connects, parsed from "tcp:HOST:PORT" or "unix:NAME". HOST is a numeric IPv4
// address, a numeric IPv6 address in brackets, or "localhost": names are resolved by whoever may block. NAME
// is an abstract unix name.
class SocketAddress {
 public:
  // InvalidArgument names what is wrong.
  static absl::StatusOr<SocketAddress> Parse(const std::string& text);

  bool is_unix() const { return raw_.ss_family == AF_UNIX; }
  const std::string& text() const { return text_; }
  // For libraries that take socket addresses themselves.
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&raw_); }
  socklen_t raw_bytes() const { return raw_bytes_; }
  // The text of an IPv4 or IPv6 address, as Parse takes it.
  static std::string FromRaw(const sockaddr_storage& raw);

  // A bound, listening, non-blocking socket. Unavailable when the address is in use.
  absl::StatusOr<UniqueFd> Listen() const;
  // A non-blocking socket whose connect has begun (and perhaps ended). Unavailable when nobody listens.
  absl::StatusOr<UniqueFd> Connect() const;

 private:
  absl::StatusOr<UniqueFd> Open() const;
  sockaddr_storage raw_{};
  socklen_t raw_bytes_ = 0;
  std::string text_;
};

// The kernel's own tuning begins at 128 KiB and was seen to stop at 1.7 MB over loopback, where a reader that
// is late for .3 ms has segments dropped and sent again: 144 of them in one `bench read` of 16 parts of 4
// MiB, 7 with this much at once. At most half of the bound of net.ipv4.tcp_rmem.
inline constexpr int kSameHostWindowBytes = 4 << 20;

// No delay for small frames; and between two ends on one host no pacing: BBR as the system's default holds 16
// parts of 1 MiB over loopback at 2.1 GB/s where Reno, allowed everywhere, makes 3.6, and room for
// kSameHostWindowBytes. A real path keeps the system's choices.
void TuneTcp(int fd);
// The address a listening socket got, in the form that SocketAddress::Parse takes.
absl::StatusOr<std::string> BoundAddress(int fd);
// The network device a connected socket goes through: "lo", "eth0", "unix".
std::string DeviceOf(int fd);
// SO_PEERCRED of a unix socket; -1 when it cannot be told.
int64_t PeerUid(int fd);

}  // namespace cistern
