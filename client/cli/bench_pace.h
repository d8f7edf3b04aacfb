#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace cistern {

// The times at which ops of `op_bytes` bytes begin that move at most `bytes_per_s` (0: as fast as they go).
// One thread.
class BenchPace {
 public:
  BenchPace(uint64_t bytes_per_s, uint64_t op_bytes)
      : between_(bytes_per_s == 0 ? Clock::duration{0}
                                  : std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                        static_cast<double>(op_bytes) / static_cast<double>(bytes_per_s)))) {}

  // Waits for the next op's time; false where ops have no pace. What was missed while the machine did
  // something else is not made up for.
  bool Await() {
    if (between_ == Clock::duration{0}) return false;
    if (turn_ > Clock::now()) std::this_thread::sleep_until(turn_);
    return TakeTurn();
  }
  // Whether it is the next op's time; then the one after has its own.
  bool TakeTurn() {
    const auto now = Clock::now();
    if (turn_ > now) return false;
    turn_ = now + between_;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::duration between_;
  Clock::time_point turn_;
};

}  // namespace cistern
