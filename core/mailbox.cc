#include "core/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "core/check.h"

namespace cistern {

Mailbox::Mailbox() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Mailbox::~Mailbox() {
  if (fd_ >= 0) ::close(fd_);
}

bool Mailbox::Post(std::function<void()> task) {
  const MutexLock lock(&mutex_);
  if (waiting_.size() >= kMailboxDepthMax) return false;
  waiting_.push_back(std::move(task));
  if (waiting_.size() == 1) {
    // The first of a batch wakes the owner. Said before: waking up, the owner may take this thread's CPU, and
    // would look in vain until it gets it back. So it waits for the lock instead.
    any_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof(one));  // Fails on a full counter alone, which is readable as well.
  }
  return true;
}

bool Mailbox::Drain() {
  if (!any_.load(std::memory_order_relaxed)) return false;
  CISTERN_CHECK(running_.empty());  // A task must not drain the box it came from.
  {
    const MutexLock lock(&mutex_);
    running_.swap(waiting_);
    any_.store(false, std::memory_order_relaxed);
    uint64_t count = 0;
    (void)!::read(fd_, &count, sizeof(count));  // Finds nothing when a forked child has read it.
  }
  // A task may throw when memory runs out: it and its siblings are gone then, the box is not.
  struct Cleared {
    ~Cleared() { tasks.clear(); }
    std::vector<std::function<void()>>& tasks;
  } const cleared{running_};
  for (std::function<void()>& task : running_) {
    task();
    task = nullptr;  // What it holds goes now, not after its siblings.
  }
  return true;
}

}  // namespace cistern
