#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/mutex.h"

namespace cistern {

inline constexpr size_t kMailboxDepthMax = 4096;

// The only way into a shard from another thread: bounded, never blocks, wakes the shard's sleep through an
// eventfd.
class Mailbox {
 public:
  Mailbox();  // Without a free descriptor fd() is below 0, and nobody is woken: the owner says so.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False when kMailboxDepthMax tasks are waiting. Thread: any.
  [[nodiscard]] bool Post(std::function<void()> task);
  // Runs what is waiting; true if anything ran. Thread: the owner's. Costs one relaxed load when empty.
  bool Drain();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  Mutex mutex_;
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> running_;  // Owner's thread only.
  std::atomic<bool> any_{false};
};

}  // namespace cistern
