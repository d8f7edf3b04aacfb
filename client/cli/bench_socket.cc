#include "client/cli/bench_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "core/random.h"
#include "transport/socket_address.h"

namespace cistern {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 30;
constexpr size_t kPiecesMax = 1024;  // IOV_MAX: of one sendmsg.
constexpr int kReadyWithinMs = 30'000;
constexpr uint64_t kSeed = 9;

// What we ask of the child: answer with so many parts, then wait for the next request spinning or blocking.
struct Ask {
  uint32_t parts = 0;
  uint32_t spin = 0;
};

bool Again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool ReceiveAll(int fd, void* to, size_t bytes, bool spin) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, spin ? MSG_DONTWAIT : 0);
    if (got == 0 || (got < 0 && !Again())) return false;
    if (got < 0) continue;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool SendAll(int fd, iovec* pieces, size_t count, bool spin) {
  while (count > 0) {
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0));
    if (sent < 0 && !Again()) return false;
    for (size_t left = sent < 0 ? 0 : static_cast<size_t>(sent); left > 0;) {
      const size_t step = std::min(left, pieces->iov_len);
      pieces->iov_base = static_cast<std::byte*>(pieces->iov_base) + step;
      pieces->iov_len -= step;
      left -= step;
      if (pieces->iov_len == 0) ++pieces, --count;
    }
  }
  return true;
}

// The child. We have threads that it lacks: system calls and its own stack only.
[[noreturn]] void Serve(int fd, size_t size, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  void* memory =
      mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) _exit(1);
  std::memset(memory, 0x5a, kArenaBytes);  // Shared, as an arena is; every page is there.
  auto* arena = static_cast<std::byte*>(memory);
  if (send(fd, arena, 1, MSG_NOSIGNAL) != 1) _exit(1);
  static std::array<iovec, kPiecesMax> pieces;
  Random random(kSeed);
  for (Ask ask; ReceiveAll(fd, &ask, sizeof(ask), ask.spin != 0);) {
    for (uint32_t left = ask.parts; left > 0;) {
      const uint32_t count = std::min<uint32_t>(left, kPiecesMax);
      for (uint32_t i = 0; i < count; ++i)
        pieces[i] = {arena + random.Below(kArenaBytes / size) * size, size};
      if (!SendAll(fd, pieces.data(), count, ask.spin != 0)) _exit(0);
      left -= count;
    }
  }
  _exit(0);
}

bool TcpPair(int fds[2]) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = bind(listener, raw, bytes) == 0 && listen(listener, 1) == 0 &&
                         getsockname(listener, raw, &bytes) == 0 && connect(fds[0], raw, bytes) == 0;
  fds[1] = connected ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  close(listener);
  for (int i = 0; i < 2 && fds[1] >= 0; ++i) TuneTcp(fds[i]);  // The limit gets what we get.
  return fds[1] >= 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLimit>> SocketLimit::Create(size_t size, size_t batch, bool over_unix,
                                                                 std::byte* to, size_t to_bytes) {
  int fds[2] = {-1, -1};
  const bool paired = over_unix ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0 : TcpPair(fds);
  const pid_t parent = getpid();
  const pid_t child = paired ? fork() : -1;
  if (child == 0) {
    close(fds[0]);
    Serve(fds[1], size, parent);
  }
  const int error = errno;
  close(fds[1]);
  if (child < 0) {
    close(fds[0]);
    return absl::ErrnoToStatus(error, "cannot measure a raw socket");
  }
  std::unique_ptr<SocketLimit> out(new SocketLimit(fds[0], child, size, batch, over_unix, to, to_bytes));
  pollfd ready{fds[0], POLLIN, 0};
  std::byte word;
  if (poll(&ready, 1, kReadyWithinMs) != 1 || !ReceiveAll(fds[0], &word, 1, false)) {
    return absl::ResourceExhaustedError(
        "this machine has no 1 GiB of memory left for --limit; free as much, or bench without it");
  }
  return out;
}

SocketLimit::SocketLimit(int fd, pid_t child, size_t size, size_t batch, bool over_unix, std::byte* to,
                         size_t to_bytes)
    : fd_(fd),
      child_(child),
      size_(size),
      batch_(batch),
      over_unix_(over_unix),
      to_(to),
      to_bytes_(to_bytes) {}

SocketLimit::~SocketLimit() {
  close(fd_);
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

std::string SocketLimit::name() {
  std::string kind = over_unix_ ? "raw unix socket" : "raw tcp socket";
  if (blocking_.count() == 0) return kind;
  return kind + (spinning_.Median() > blocking_.Median() ? ", spinning" : ", blocking");
}

double SocketLimit::gbps() { return std::max(spinning_.Median(), blocking_.Median()); }

double SocketLimit::Slice(double seconds) {
  const double blocking = Half(seconds / 2, false), spinning = Half(seconds / 2, true);
  if (blocking < 0 || spinning < 0) return -1;
  blocking_.Add(blocking);
  spinning_.Add(spinning);
  return gbps();
}

double SocketLimit::Half(double seconds, bool spin) {
  using SteadyClock = std::chrono::steady_clock;
  const Ask ask{static_cast<uint32_t>(batch_), spin ? 1u : 0u};
  const auto begin = SteadyClock::now();
  double took = 0;
  uint64_t bytes = 0;
  while (took < seconds) {
    if (send(fd_, &ask, sizeof(ask), MSG_NOSIGNAL) != sizeof(ask)) return -1;
    for (size_t i = 0; i < batch_; ++i) {
      if (!ReceiveAll(fd_, to_ + at_, size_, spin)) return -1;
      at_ = at_ + 2 * size_ <= to_bytes_ ? at_ + size_ : 0;
    }
    bytes += size_ * batch_;
    took = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  }
  const Ask rest;  // The child must not spin while others are measured.
  if (send(fd_, &rest, sizeof(rest), MSG_NOSIGNAL) != sizeof(rest)) return -1;
  return static_cast<double>(bytes) / took / 1e9;
}

}  // namespace cistern
