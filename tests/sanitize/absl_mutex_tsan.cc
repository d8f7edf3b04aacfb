// Lets ThreadSanitizer see Debian's absl::Mutex.
//
// The package is not instrumented, so without help TSan knows nothing of its locks and calls every member
// that they guard a race. Suppressing those would silence it where it matters. Instead these definitions
// stand before the library's (an executable's symbols win): they call the library's own and tell TSan what a
// lock orders. gRPC uses the same mutex, so much of its order is seen as well. Linked into every binary of a
// build with -fsanitize=thread, and into nothing else.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

template <typename Function>
Function* Library(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "tests/sanitize: the absl library has no %s; its mangled names have changed\n",
                 symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

// A mutex is let go and taken again inside its scope. Conditions of others are evaluated there while the
// library holds the lock: what they read is ordered, but TSan has been told of the release before, so it must
// not look.
class LetGo {
 public:
  explicit LetGo(void* mutex) : mutex_(mutex) {
    __tsan_release(mutex_);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  }
  ~LetGo() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;

 private:
  void* const mutex_;
};

}  // namespace

// The namespace of Debian's build is inline: absl::debian3.
#define CISTERN_ABSL(name) Library<Real>("_ZN4absl7debian3" name)

namespace absl {

void Mutex::Lock() {
  using Real = void(Mutex*);
  static Real* const real = CISTERN_ABSL("5Mutex4LockEv");
  real(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  using Real = bool(Mutex*);
  static Real* const real = CISTERN_ABSL("5Mutex7TryLockEv");
  const bool locked = real(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  using Real = void(Mutex*);
  static Real* const real = CISTERN_ABSL("5Mutex6UnlockEv");
  const LetGo scope(this);
  real(this);
}

void Mutex::ReaderLock() {
  using Real = void(Mutex*);
  static Real* const real = CISTERN_ABSL("5Mutex10ReaderLockEv");
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  using Real = void(Mutex*);
  static Real* const real = CISTERN_ABSL("5Mutex12ReaderUnlockEv");
  const LetGo scope(this);
  real(this);
}

void Mutex::Await(const Condition& condition) {
  using Real = void(Mutex*, const Condition&);
  static Real* const real = CISTERN_ABSL("5Mutex5AwaitERKNS0_9ConditionE");
  {
    const LetGo scope(this);
    real(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  using Real = bool(Mutex*, const Condition&, Duration);
  static Real* const real = CISTERN_ABSL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  bool holds = false;
  {
    const LetGo scope(this);
    holds = real(this, condition, timeout);
  }
  __tsan_acquire(this);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  using Real = void(CondVar*, Mutex*);
  static Real* const real = CISTERN_ABSL("7CondVar4WaitEPNS0_5MutexE");
  {
    const LetGo scope(mutex);
    real(this, mutex);
  }
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  using Real = bool(CondVar*, Mutex*, Duration);
  static Real* const real = CISTERN_ABSL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  bool timed_out = false;
  {
    const LetGo scope(mutex);
    timed_out = real(this, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  using Real = bool(CondVar*, Mutex*, Time);
  static Real* const real = CISTERN_ABSL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  bool timed_out = false;
  {
    const LetGo scope(mutex);
    timed_out = real(this, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

}  // namespace absl
