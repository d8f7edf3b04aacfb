#pragma once

#include <cstdint>
#include <vector>

namespace cistern {

// Counts of durations in milliseconds: exact below 256 ms, in steps of at most 0.8 % above. Fixed memory.
class GapHistogram {
 public:
  GapHistogram() : counts_(kBuckets) {}
  void Add(uint64_t ms) {
    ++counts_[Bucket(ms)];
    ++total_;
  }
  uint64_t total() const { return total_; }
  // The longest duration of the step that holds the smallest one which `share` (0..1] do not exceed; 0 when
  // empty.
  uint64_t Percentile(double share) const;

 private:
  static constexpr uint32_t kStepBits = 7;  // 128 steps an octave.
  static constexpr uint32_t kExact = 2u << kStepBits;
  static constexpr uint32_t kBuckets = kExact + ((64 - kStepBits - 1) << kStepBits);

  static uint32_t Bucket(uint64_t ms);
  static uint64_t Last(uint32_t bucket);

  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
};

}  // namespace cistern
