#include "cache_node/disk/io_threads.h"

#include <unistd.h>

#include <utility>

namespace cistern {

IoThreads::IoThreads(size_t threads, int wake_fd) : wake_fd_(wake_fd) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

IoThreads::~IoThreads() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void IoThreads::Post(std::function<DiskDone()> call) {
  const absl::MutexLock lock(&mutex_);
  calls_.push_back(std::move(call));
}

void IoThreads::Take(std::vector<DiskDone>& done) {
  const absl::MutexLock lock(&mutex_);
  done.insert(done.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void IoThreads::Run() {
  while (true) {
    std::function<DiskDone()> call;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &IoThreads::HasWork));
      if (calls_.empty()) return;  // Stopped, and nothing is left.
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    const DiskDone done = call();
    {
      const absl::MutexLock lock(&mutex_);
      ended_.push_back(done);
    }
    const uint64_t one = 1;
    if (::write(wake_fd_, &one, sizeof(one)) < 0) continue;  // Full: it is readable, which is all it is for.
  }
}

}  // namespace cistern
