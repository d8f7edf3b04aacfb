#include "core/clock.h"

#include <ctime>

namespace cistern {

Nanos BootClock::Now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace cistern
