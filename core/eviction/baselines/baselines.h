#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/eviction/replay.h"

namespace cistern {

// All that `cistern sim eviction` can show, in the order of its table: lru, fifo, s3fifo, lfu, gdsf,
// second-sighting, lru2, optimum and cistern, the one that nodes run.
const std::vector<std::string>& SimulatedPolicies();

// Runs a trace through one pool of `capacity` > 0 equal slots. Rules: a block is a hit only if all before it
// in the request are there at arrival; then every block is touched or inserted, the deepest first. "lru" and
// "cistern" are the nodes' own code. InvalidArgument for an unknown policy.
absl::StatusOr<ReplayScore> SimulatePolicy(std::string_view policy, const ReplayTrace& trace,
                                           uint32_t capacity);

// The most that any policy can hit: what is used again last goes first, the deeper block of equals, and what
// would go at once is not taken in. A parent is never used later than its child, so chains stay whole.
ReplayScore ReplayOptimum(const ReplayTrace& trace, uint32_t capacity);

// Hits of a memory without end in which a block lives `ttl_ms` from its last use.
ReplayScore ReplaySlidingTtl(const ReplayTrace& trace, int64_t ttl_ms);

}  // namespace cistern
