#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cache_node/disk/disk.h"

namespace cistern {

inline constexpr size_t kIoThreadsMax = 4;

// Blocking file calls off the shard's thread: all of them where io_uring is refused, else those that it has
// no good call for (creating, removing). Owner: FileDisk. Thread: Post and Take from the owner's; destructor
// waits for what runs. Bounded by kDiskDepthMax, which FileDisk keeps.
class IoThreads {
 public:
  // wake_fd: an eventfd that is written after each end.
  IoThreads(size_t threads, int wake_fd);
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  void Post(std::function<DiskDone()> call);
  // Adds what has ended.
  void Take(std::vector<DiskDone>& done);

 private:
  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || !calls_.empty(); }

  const int wake_fd_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::function<DiskDone()>> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<DiskDone> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace cistern
