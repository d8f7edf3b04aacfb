#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace cistern {

// A std::mutex with the annotations of absl::Mutex, for what calls of the data path take. Debian's Abseil is
// built with its search for deadlocks, so that each absl::Mutex takes 60 ns more and, with it, one spin lock
// of the whole process.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // Says to the analysis what callbacks know that run under it.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(*mutex) { mutex_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Gives a held mutex up for its scope, also when that is left by an exception.
class ABSL_SCOPED_LOCKABLE MutexUnlock {
 public:
  explicit MutexUnlock(Mutex* mutex) ABSL_UNLOCK_FUNCTION(mutex) : mutex_(*mutex) { mutex_.Unlock(); }
  ~MutexUnlock() ABSL_UNLOCK_FUNCTION() { mutex_.Lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // May return without a signal.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> held(mutex->mutex_, std::adopt_lock);
    signal_.wait(held);
    held.release();
  }
  void SignalAll() { signal_.notify_all(); }

 private:
  std::condition_variable signal_;
};

}  // namespace cistern
