#pragma once

#include <sched.h>

#include <cstdint>

namespace cistern {

// Rounds that only pause before a waiting thread begins to offer its CPU: an answer from the same host
// mostly comes within them.
inline constexpr uint32_t kSpinPausesMax = 32;
// Then one round in so many offers it. What is waited for is late by the system call otherwise, and a thread
// behind us waits for a microsecond more.
inline constexpr uint32_t kSpinOfferEvery = 8;

// Looking again and again without holding a CPU from the one that is waited for. Where more threads spin than
// there are CPUs, one that only pauses keeps its CPU for a whole time slice (milliseconds), and what it waits
// for may stand in line behind it. Offering costs a system call, and only while there is nothing else to do.
// Owner: the waiting thread.
class SpinWait {
 public:
  // Call when a look found nothing.
  void Once() {
    if (++rounds_ <= kSpinPausesMax || rounds_ % kSpinOfferEvery != 0) {
      __builtin_ia32_pause();
    } else {
      sched_yield();
    }
  }
  // Call when a look found something.
  void Reset() { rounds_ = 0; }

 private:
  uint32_t rounds_ = 0;
};

}  // namespace cistern
