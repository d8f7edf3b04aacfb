#include "tests/sim/sim_shrink.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/sim/sim_faults.h"

namespace cistern {

SeedsReport RunSeeds(uint64_t first, uint64_t count, uint32_t jobs,
                     const std::function<SimOptions(uint64_t)>& draw) {
  SeedsReport total;
  std::mutex mutex;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (uint64_t i = next++; i < count && !failed; i = next++) {
      const SimOptions options = draw(first + i);
      const SimReport report = SimCluster(options).Run();
      const std::lock_guard<std::mutex> lock(mutex);
      ++total.runs;
      total.calls += options.steps;
      total.events += report.events;
      for (const auto& [name, times] : report.marks) total.marks[name] += times;
      if (report.failure.empty()) continue;
      failed = true;
      if (total.failed_seed != 0 && total.failed_seed < options.seed) continue;
      total.failed_seed = options.seed;
      total.failure = report.failure;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return total;
}

namespace {

// What may be taken away from a run, the largest pieces first.
std::vector<SimOptions> Smaller(const SimOptions& from) {
  std::vector<SimOptions> all;
  for (const uint32_t steps : {from.steps / 2, from.steps - from.steps / 4, from.steps - 1}) {
    if (steps == 0 || steps >= from.steps) continue;
    all.push_back(from);
    all.back().steps = steps;
  }
  for (uint32_t i = 0; i < kFaultKinds && !from.calm; ++i) {
    if ((from.faults >> i & 1) == 0) continue;
    all.push_back(from);
    all.back().faults &= ~(1u << i);
  }
  if (from.nodes > 1) {
    all.push_back(from);
    --all.back().nodes;
  }
  if (from.clients > 1) {
    all.push_back(from);
    --all.back().clients;
  }
  return all;
}

}  // namespace

Shrunk Shrink(const SimOptions& failing, const std::string& failure) {
  Shrunk best{.options = failing, .failure = failure, .runs = 0};
  for (bool smaller = true; smaller && best.runs < kShrinkRunsMax;) {
    smaller = false;
    for (const SimOptions& candidate : Smaller(best.options)) {
      if (++best.runs > kShrinkRunsMax) break;
      const SimReport report = SimCluster(candidate).Run();
      if (report.failure.empty()) continue;
      best.options = candidate;
      best.failure = report.failure;
      smaller = true;
      break;
    }
  }
  return best;
}

std::string FlagsOf(const SimOptions& options) {
  const SimOptions drawn = DrawOptions(options.seed);
  std::string flags = "--seed " + std::to_string(options.seed);
  if (options.steps != drawn.steps) flags += " --steps " + std::to_string(options.steps);
  if (options.nodes != drawn.nodes) flags += " --nodes " + std::to_string(options.nodes);
  if (options.clients != drawn.clients) flags += " --clients " + std::to_string(options.clients);
  if (options.faults != drawn.faults) flags += " --faults " + FaultNames(options.faults);
  return flags;
}

}  // namespace cistern
