#include "client/cli/interrupt.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

std::atomic<bool> g_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // The handler may set it.

void OnInterrupt(int) { g_asked.store(true, std::memory_order_relaxed); }

}  // namespace

Interrupt::Interrupt() {
  g_asked = false;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &before_);
}

Interrupt::~Interrupt() { ::sigaction(SIGINT, &before_, nullptr); }

bool Interrupt::Asked() { return g_asked.load(std::memory_order_relaxed); }

void Interrupt::SleepUntil(std::chrono::steady_clock::time_point until) {
  for (auto now = std::chrono::steady_clock::now(); now < until && !Asked();
       now = std::chrono::steady_clock::now()) {
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(until - now, kLookEvery));
  }
}

}  // namespace cistern
