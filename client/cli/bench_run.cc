#include "client/cli/bench_run.h"

#include <algorithm>
#include <chrono>

namespace cistern {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::duration d) { return std::chrono::duration<double>(d).count(); }

struct Slice {
  double seconds = 0;  // Of the ops alone.
  uint64_t ops = 0, failed = 0, bytes = 0, items = 0;
};

// One slice: `us` gets each op's time.
Slice RunSlice(BenchOp& op, double seconds, uint64_t ops_max, Samples* us) {
  Slice slice;
  const auto begin = SteadyClock::now();
  auto last = begin;
  while (slice.ops < ops_max && Seconds(last - begin) < seconds) {
    if (us != nullptr && op.Await()) last = SteadyClock::now();
    const BenchStep step = op.Step();
    if (!step.more) break;
    const auto now = SteadyClock::now();
    // One that fails at once, its node being dead, is no fast operation.
    if (us != nullptr && step.ok) us->Add(Seconds(now - last) * 1e6);
    last = now;
    ++slice.ops;
    if (!step.ok) {
      ++slice.failed;
      continue;
    }
    slice.bytes += step.bytes;
    slice.items += step.items;
  }
  slice.seconds = Seconds(last - begin);
  return slice;
}

void WarmUp(BenchOp& op, double slice_seconds) {
  uint64_t left = op.WarmSteps();
  const auto begin = SteadyClock::now();
  while (left > 0 && Seconds(SteadyClock::now() - begin) < kBenchWarmSecondsMax) {
    op.Prepare(slice_seconds);
    const Slice slice = RunSlice(op, kBenchWarmSecondsMax, left, nullptr);
    if (slice.ops == 0) break;
    left -= std::min(left, slice.ops);
  }
}

}  // namespace

BenchFigures RunSlices(BenchOp& op, const BenchLimit& limit, double seconds,
                       const std::function<double()>& cpu_seconds) {
  const double slice_seconds = std::max(kBenchSliceSecondsMin, seconds / kBenchSlices);
  WarmUp(op, slice_seconds);
  Samples us, gbps, ops, items, limits;
  BenchFigures out;
  double cpu = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < kBenchSlices; ++i) {
    op.Prepare(slice_seconds);
    const double cpu_before = cpu_seconds();
    const Slice slice = RunSlice(op, slice_seconds, UINT64_MAX, &us);
    cpu += cpu_seconds() - cpu_before;
    out.ops += slice.ops;
    out.failed_ops += slice.failed;
    bytes += slice.bytes;
    if (slice.seconds > 0) {
      gbps.Add(static_cast<double>(slice.bytes) / slice.seconds / 1e9);
      ops.Add(static_cast<double>(slice.ops - slice.failed) / slice.seconds);
      items.Add(static_cast<double>(slice.items) / slice.seconds);
    }
    if (limit.name.empty()) continue;
    if (const double rate = limit.slice(slice_seconds); rate > 0) limits.Add(rate);
  }
  out.gbps = gbps.Median();
  out.ops_per_s = ops.Median();
  out.items_per_s = items.Median();
  out.us_p50 = us.Percentile(0.5);
  out.us_p99 = us.Percentile(0.99);
  out.cpu_s_per_gb = bytes == 0 ? 0 : cpu / (static_cast<double>(bytes) / 1e9);
  out.limit_gbps = limits.Median();
  return out;
}

}  // namespace cistern
