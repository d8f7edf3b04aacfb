#include "transport/raw_socket_limit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/random.h"
#include "core/status_macros.h"
#include "transport/unique_fd.h"

namespace cistern {
namespace {

constexpr size_t kBatchMax = 1024;  // IOV_MAX: one sendmsg a request.
constexpr int kAnswerWithinMs = 30'000;
constexpr double kWarmupShare = 0.1;

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Shared anonymous memory as an arena is, or private as a destination is; every page is there.
std::byte* MapMemory(size_t bytes, bool shared) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  std::memset(at, 0x5a, bytes);
  return static_cast<std::byte*>(at);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// True when all of `bytes` came.
bool ReceiveAll(int fd, std::byte* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got == 0 || (got < 0 && !WouldBlock())) return false;
    if (got < 0) continue;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool SendAll(int fd, std::vector<iovec>& iov) {
  size_t first = 0;
  while (first < iov.size()) {
    msghdr message{};
    message.msg_iov = &iov[first];
    message.msg_iovlen = iov.size() - first;
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && !WouldBlock()) return false;
    size_t left = sent < 0 ? 0 : static_cast<size_t>(sent);
    while (first < iov.size() && left >= iov[first].iov_len) left -= iov[first++].iov_len;
    if (first == iov.size()) break;
    iov[first].iov_base = static_cast<std::byte*>(iov[first].iov_base) + left;
    iov[first].iov_len -= left;
  }
  return true;
}

// The child: never returns. Its arena is its own, so that its page tables are warm.
[[noreturn]] void Serve(int fd, const RawSocketLimit& limit, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  std::byte* arena = MapMemory(limit.arena_bytes, true);
  std::byte request[8] = {};
  if (arena == nullptr || send(fd, request, 1, MSG_NOSIGNAL) != 1) _exit(1);
  if (limit.spin) fcntl(fd, F_SETFL, O_NONBLOCK);
  Random random(1);
  const size_t slots = limit.arena_bytes / limit.size;
  std::vector<iovec> iov(limit.batch);
  while (ReceiveAll(fd, request, sizeof(request))) {
    for (iovec& part : iov) part = {arena + random.Below(slots) * limit.size, limit.size};
    if (!SendAll(fd, iov)) break;
  }
  _exit(0);
}

absl::Status Pair(RawSocketLimit::Family family, UniqueFd fds[2]) {
  if (family == RawSocketLimit::Family::kUnix) {
    int raw[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, raw) != 0)
      return absl::ErrnoToStatus(errno, "socketpair");
    fds[0].Reset(raw[0]);
    fds[1].Reset(raw[1]);
    return absl::OkStatus();
  }
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  fds[0].Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), raw, bytes) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), raw, &bytes) != 0 || connect(fds[0].get(), raw, bytes) != 0) {
    return absl::ErrnoToStatus(errno, "loopback connection");
  }
  fds[1].Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int one = 1;
  for (int i = 0; i < 2; ++i) setsockopt(fds[i].get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return fds[1].valid() ? absl::OkStatus() : absl::ErrnoToStatus(errno, "accept");
}

double CpuSeconds(pid_t child) {
  clockid_t clock;
  const double mine = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  return clock_getcpuclockid(child, &clock) == 0 ? mine + Seconds(clock) : mine;
}

absl::StatusOr<RawSocketResult> Drive(int fd, const RawSocketLimit& limit, pid_t child) {
  std::byte* to = MapMemory(limit.destination_bytes, false);
  if (to == nullptr) return absl::ResourceExhaustedError("no memory for the destinations");
  pollfd ready{fd, POLLIN, 0};
  std::byte word[8] = {};
  absl::StatusOr<RawSocketResult> result = absl::UnavailableError("the raw socket's other side ended");
  if (poll(&ready, 1, kAnswerWithinMs) == 1 && recv(fd, word, 1, 0) == 1) {
    if (limit.spin) fcntl(fd, F_SETFL, O_NONBLOCK);
    Random random(2);
    const size_t slots = limit.destination_bytes / limit.size;
    double begin = Seconds(CLOCK_MONOTONIC), cpu = CpuSeconds(child);
    const double start = begin + limit.seconds * kWarmupShare, end = start + limit.seconds;
    uint64_t bytes = 0;
    bool warm = false;
    for (;;) {
      const double now = Seconds(CLOCK_MONOTONIC);
      if (!warm && now >= start) {
        warm = true;
        begin = now;
        cpu = CpuSeconds(child);
        bytes = 0;
      }
      if (now >= end) {
        const double gigabytes = static_cast<double>(bytes) * 1e-9;
        result =
            RawSocketResult{gigabytes / (now - begin), (CpuSeconds(child) - cpu) / std::max(gigabytes, 1e-9)};
        break;
      }
      if (send(fd, word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) break;
      bool whole = true;
      for (size_t i = 0; i < limit.batch && whole; ++i) {
        whole = ReceiveAll(fd, to + random.Below(slots) * limit.size, limit.size);
      }
      if (!whole) break;
      bytes += limit.batch * limit.size;
    }
  }
  munmap(to, limit.destination_bytes);
  return result;
}

}  // namespace

absl::StatusOr<RawSocketResult> MeasureRawSocket(const RawSocketLimit& limit) {
  if (limit.size == 0 || limit.batch == 0 || limit.batch > kBatchMax || limit.size > limit.arena_bytes ||
      limit.size > limit.destination_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("raw socket of ", limit.batch, " x ", limit.size, " bytes"));
  }
  UniqueFd fds[2];
  CISTERN_RETURN_IF_ERROR(Pair(limit.family, fds));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    fds[0].Reset();
    Serve(fds[1].get(), limit, parent);
  }
  fds[1].Reset();
  absl::StatusOr<RawSocketResult> result = Drive(fds[0].get(), limit, child);
  fds[0].Reset();  // The child sees the end of its stream.
  if (!result.ok()) kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return result;
}

}  // namespace cistern
