#pragma once

#include <cstddef>
#include <vector>

namespace cistern {

inline constexpr size_t kSamplesMax = size_t{1} << 22;  // 32 MiB; later ones only count.

// Durations or rates of one kind, for percentiles. One thread.
class Samples {
 public:
  void Add(double value) {
    if (values_.size() < kSamplesMax) values_.push_back(value);
    ++count_;
    sum_ += value;
  }
  size_t count() const { return count_; }
  double sum() const { return sum_; }
  // The smallest value that at least `share` (0..1] of the samples do not exceed; 0 without samples.
  double Percentile(double share);
  double Median() { return Percentile(0.5); }

 private:
  std::vector<double> values_;
  size_t count_ = 0;
  double sum_ = 0;
};

}  // namespace cistern
