#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace cistern {

// The clock of one host: another start and a slightly other speed than the simulation's own. Hosts share
// nothing but the speed, and that only roughly, as with real CLOCK_BOOTTIME.
class HostClock final : public Clock {
 public:
  HostClock(SimClock& base, Nanos offset, int64_t drift_ppm)
      : base_(base), host_then_(offset), drift_ppm_(drift_ppm) {}
  Nanos Now() override {
    const Nanos since = base_.Now() - then_;
    return host_then_ + since + since / 1'000'000 * drift_ppm_;
  }
  // The first moment of the simulation's time at which Now() has reached `host`; kNever stays kNever.
  Nanos ToSim(Nanos host) const {
    if (host == kNever) return kNever;
    const Nanos since = std::max<Nanos>(host - host_then_, 0);
    return then_ + since / (1'000'000 + drift_ppm_) * 1'000'000 + 2 * kMicrosecond;
  }
  // From now on; above -1,000,000.
  void SetDrift(int64_t ppm) {
    host_then_ = Now();
    then_ = base_.Now();
    drift_ppm_ = ppm;
  }

 private:
  SimClock& base_;
  Nanos then_ = 0;   // Of the simulation's time, since when it goes at this speed,
  Nanos host_then_;  // and what it showed then.
  int64_t drift_ppm_;
};

// Things to do later, in order of (time, sequence). One thread.
class SimSchedule {
 public:
  void At(Nanos at, std::function<void()> what) {
    heap_.push_back({at, next_sequence_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), Later());
  }
  Nanos next() const { return heap_.empty() ? kNever : heap_.front().at; }
  bool RunDue(Nanos now) {
    bool any = false;
    while (!heap_.empty() && heap_.front().at <= now) {
      std::pop_heap(heap_.begin(), heap_.end(), Later());
      const std::function<void()> what = std::move(heap_.back().what);
      heap_.pop_back();
      what();
      any = true;
    }
    return any;
  }

 private:
  struct Entry {
    Nanos at;
    uint64_t sequence;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  std::vector<Entry> heap_;
  uint64_t next_sequence_ = 0;
};

}  // namespace cistern
