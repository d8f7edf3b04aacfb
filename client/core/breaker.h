#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"
#include "core/random.h"

namespace cistern {

// Skips a peer that failed `threshold` times in a row; lets one request through every `retry` until one
// succeeds (F31). Owner: a peer. Thread: its owner's.
class Breaker {
 public:
  Breaker(uint32_t threshold, Nanos retry) : threshold_(std::max(threshold, 1u)), retry_(retry) {}
  bool IsOpen() const { return failures_ >= threshold_; }
  // True when a request may be sent now. While open: one probe per retry interval; a probe that nobody
  // reports on costs nothing, the next interval grants another.
  bool TryEnter(Nanos now) {
    if (!IsOpen()) return true;
    if (now < probe_at_) return false;
    probe_at_ = now + retry_;
    return true;
  }
  void Success() { failures_ = 0; }
  // True when this failure opened it.
  bool Failure(Nanos now) {
    if (failures_ < threshold_)
      ++failures_;
    else
      return false;
    if (failures_ < threshold_) return false;
    probe_at_ = now + retry_;
    return true;
  }

 private:
  uint32_t threshold_;
  Nanos retry_;
  uint32_t failures_ = 0;
  Nanos probe_at_ = 0;
};

inline constexpr Nanos kBackoffMin = 10 * kMillisecond;
inline constexpr Nanos kBackoffMax = 2 * kSecond;

// Doubling delays with jitter between attempts to connect (F26). The first attempt after a loss is immediate.
class Backoff {
 public:
  void Reset() { step_ = 0; }
  Nanos Next(Random& random) {
    const Nanos full = std::min(kBackoffMax, kBackoffMin << std::min(step_, 10u));
    ++step_;
    return full / 2 + static_cast<Nanos>(random.Below(static_cast<uint64_t>(full / 2) + 1));
  }

 private:
  uint32_t step_ = 0;
};

}  // namespace cistern
