#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tests/sim/sim_cluster.h"

namespace cistern {

inline constexpr uint32_t kShrinkRunsMax = 200;

// Many seeds, over several threads; each run has one thread.
struct SeedsReport {
  uint64_t runs = 0;
  uint64_t failed_seed = 0;  // The lowest one that failed; 0: none.
  std::string failure;       // Of that one.
  uint64_t calls = 0;        // Of clients.
  uint64_t events = 0;
  std::map<std::string, uint64_t> marks;
};
// Runs first .. first + count - 1 with options that `draw` makes of a seed; no new seed is begun once one
// has failed.
SeedsReport RunSeeds(uint64_t first, uint64_t count, uint32_t jobs,
                     const std::function<SimOptions(uint64_t)>& draw);

// A smaller run that fails, too: fewer calls, kinds of faults, nodes and clients.
struct Shrunk {
  SimOptions options;
  std::string failure;
  uint32_t runs = 0;
};
Shrunk Shrink(const SimOptions& failing, const std::string& failure);

// The flags of cistern-sim that give this run.
std::string FlagsOf(const SimOptions& options);

}  // namespace cistern
