#include "transport/ucx/held_fds.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <ucs/sys/sock.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

// UCX's thread, which makes connections over TCP, knows each by the number of its descriptor alone. What it
// cannot handle at once, because the worker is busy, waits under that number; so does what epoll_wait gave it
// and it has not come to. When the connection is closed meanwhile, as that of a client killed while it
// connects is, and the next one gets its number, of this worker or of another shard's, the event goes to that
// one, where it is impossible, and UCX ends the process (docs/adr/0031). So the number of what UCX closes
// stays taken for a while.
//
// This object comes before libucs where libuct looks for ucs_close_fd: it is in the program (tests), or in
// the module through which libuct is loaded.
namespace cistern {
namespace {

struct Held {
  std::mutex mutex;
  std::deque<int> numbers;  // Oldest first. Each is a duplicate of `nothing`.
  int nothing = -1;
  size_t max = 0;
};

Held& TheHeld() {
  static Held& held = *new Held;  // UCX's thread may outlive what is destroyed at exit.
  return held;
}

// Closes `number` and keeps it taken. Returns the number that may be free now; -1: none.
int Hold(int number) {
  Held& held = TheHeld();
  const std::lock_guard<std::mutex> lock(held.mutex);
  if (held.nothing < 0) {
    rlimit limit{};
    const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    held.max = known ? std::min<size_t>(kHeldFdsMax, limit.rlim_cur / 8) : kHeldFdsMax;
    held.nothing = open("/dev/null", O_PATH | O_CLOEXEC);
  }
  // In one step: between close and open another thread could get it.
  if (held.nothing < 0 || dup3(held.nothing, number, O_CLOEXEC) != number) return number;
  held.numbers.push_back(number);
  if (held.numbers.size() <= held.max) return -1;
  const int oldest = held.numbers.front();
  held.numbers.pop_front();
  return oldest;
}

}  // namespace

size_t HeldFds() {
  Held& held = TheHeld();
  const std::lock_guard<std::mutex> lock(held.mutex);
  return held.numbers.size();
}

}  // namespace cistern

extern "C" __attribute__((visibility("default"))) void ucs_close_fd(int* fd_p) {
  const int number = std::exchange(*fd_p, -1);
  if (number < 0) return;
  if (const int free = cistern::Hold(number); free >= 0) close(free);
}
