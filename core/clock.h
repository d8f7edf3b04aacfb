#pragma once

#include <cstdint>

namespace cistern {

// Nanoseconds since an arbitrary start; never goes back and goes on while the machine sleeps
// (CLOCK_BOOTTIME).
using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos Now() = 0;
};

// CLOCK_BOOTTIME. Wall-clock jumps do not move it.
class BootClock final : public Clock {
 public:
  Nanos Now() override;
};

// Time that only moves when told to; for tests and the simulator.
class SimClock final : public Clock {
 public:
  Nanos Now() override { return now_; }
  void Advance(Nanos by) { now_ += by; }
  void Set(Nanos to) { now_ = to; }

 private:
  Nanos now_ = kSecond;
};

}  // namespace cistern
