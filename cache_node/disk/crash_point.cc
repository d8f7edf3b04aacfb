#include "cache_node/disk/crash_point.h"

#include <atomic>
#include <cstdlib>

namespace cistern {
namespace internal {

uint8_t g_crash_point = 0;

namespace {
std::atomic<uint64_t> g_passes_left{0};
}  // namespace

void PassCrashPoint() {
  if (g_passes_left.fetch_sub(1) == 1) std::abort();
}

}  // namespace internal

void ArmCrashPoint(uint8_t point, uint64_t pass) {
  internal::g_passes_left.store(pass == 0 ? 1 : pass);
  internal::g_crash_point = point;
}

}  // namespace cistern
