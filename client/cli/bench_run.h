#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cistern/status.h"
#include "client/cli/output.h"
#include "client/cli/samples.h"

namespace cistern {

inline constexpr int kBenchSlices =
    12;  // Measured and limit slices alternate; each figure is the median slice's.
inline constexpr double kBenchSliceSecondsMin = 0.02;
inline constexpr double kBenchWarmSecondsMax = 5;

// What one op moved.
struct BenchStep {
  bool ok = true;    // False: some part of it failed; its bytes and items do not count.
  bool more = true;  // False: nothing prepared is left; the slice ends here, and this step was none.
  uint64_t bytes = 0;
  uint64_t items = 0;
};

// One operation that a bench repeats. One thread.
class BenchOp {
 public:
  virtual ~BenchOp() = default;
  // Before each slice, untimed: prepares what ops of about `seconds` need.
  virtual void Prepare(double seconds) { (void)seconds; }
  // Before each step: waits for its time where ops have a pace, and says whether it did. Not part of the op's
  // time.
  virtual bool Await() { return false; }
  virtual BenchStep Step() = 0;
  // Steps until memory and peers are warm: as many as touch everything once.
  virtual uint64_t WarmSteps() const { return 1; }
};

// The physical limit of the same shape: moves bytes for about `seconds`, returns 10^9 bytes a second; < 0
// when it failed.
struct BenchLimit {
  std::string name;  // Empty: this op has none.
  std::function<double(double seconds)> slice;
};

struct BenchFigures {
  double gbps = 0, ops_per_s = 0, items_per_s = 0;  // Medians over the slices.
  double us_p50 = 0, us_p99 = 0;                    // Over all ops.
  double cpu_s_per_gb = 0;                          // 0 where no bytes move.
  double limit_gbps = 0;
  uint64_t ops = 0, failed_ops = 0;
};

// Repeats `op` for about `seconds` in slices, each followed by a slice of `limit` when it has a name: what
// the host does to one it does to the other. cpu_seconds: of all processes that take part, as of now.
BenchFigures RunSlices(BenchOp& op, const BenchLimit& limit, double seconds,
                       const std::function<double()>& cpu_seconds);

}  // namespace cistern
