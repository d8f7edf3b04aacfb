#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/node_stats.h"

namespace cistern {

// Which runs of a shard are in use, for people who look (`cistern status`, `top`). A bounded table: a new run
// takes the place of one that was used less than the others looked at, so runs that are used much stay in it
// and their figures are right. Owner: NodeShard. Thread: the shard's. No allocation once it is full.
class RunHeat {
 public:
  static constexpr size_t kRunsMax = 4096;
  static constexpr Nanos kHotWithin = 60 * kSecond;    // Used so lately is hot,
  static constexpr Nanos kWarmWithin = 600 * kSecond;  // so lately warm, and cold is all else.

  // A request used the first `blocks` of this run.
  // Returns how often it has been used by now.
  uint64_t Used(const BlockHash& run, uint32_t blocks, Nanos now);
  // The most used ones first, at most `max`.
  std::vector<RunStats> Top(size_t max, Nanos now) const;
  // Runs of the table: hot, warm, cold.
  struct Counts {
    uint64_t hot = 0, warm = 0, cold = 0;
  };
  Counts Count(Nanos now) const;
  static const char* TemperatureOf(Nanos idle);

 private:
  static constexpr size_t kLookedAt = 8;
  struct Row {
    BlockHash run;
    uint32_t blocks = 0;  // Most that one request used.
    uint64_t uses = 0;
    Nanos used_at = 0;
  };
  std::vector<Row> rows_;
  absl::flat_hash_map<BlockHash, uint32_t, BlockHashHasher> places_;
  size_t hand_ = 0;
};

}  // namespace cistern
