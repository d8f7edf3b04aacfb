#include "core/forks.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace cistern {
namespace {

std::atomic<uint32_t> g_forks{0};

// Runs in the child, which has one thread.
void CountFork() { g_forks.fetch_add(1, std::memory_order_relaxed); }

bool Watch() {
  if (pthread_atfork(nullptr, nullptr, CountFork) != 0) throw std::bad_alloc();
  return true;
}

}  // namespace

uint32_t ForkCount() {
  static const bool watched = Watch();
  return watched ? g_forks.load(std::memory_order_relaxed) : 0;
}

}  // namespace cistern
