#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/eviction_policy.h"
#include "core/trace_reader.h"

namespace cistern {

// What a policy made of a trace.
struct ReplayScore {
  uint64_t blocks = 0;  // References.
  uint64_t hit_blocks =
      0;  // Prefix-consistent: all blocks before it in the request were there at arrival too.
  // Evictions of a block while one that follows it in its chain stayed: bytes that nobody can reach any more.
  uint64_t stranding_evictions = 0;
  double HitRatio() const {
    return blocks == 0 ? 0 : static_cast<double>(hit_blocks) / static_cast<double>(blocks);
  }
};

// Blocks of one request, in chain order; an id stands for its block and all before it.
using TraceIds = std::vector<std::vector<uint32_t>>;

// A trace as policies see it: blocks are numbered densely.
struct ReplayTrace {
  TraceIds requests;
  std::vector<int64_t> times_ms;  // One a request; not falling.
  uint32_t unique = 0;            // Distinct ids: what an unbounded cache would hold.
};

// Reads a request trace (trace_reader.h) in the order of its time stamps. Broken lines are told and left out.
// The reader's errors; InvalidArgument for a file without requests, or with more blocks than entries have
// names.
absl::StatusOr<ReplayTrace> LoadReplayTrace(const std::string& path, TraceReader::BrokenLine broken);

// Numbers blocks anew in the order of their first use. times_ms: one a request; empty means one request a
// second. Where time falls back, it stands still.
ReplayTrace MakeReplayTrace(const TraceIds& requests, const std::vector<int64_t>& times_ms = {});

// How a request reaches the policy.
enum class ReplayFlow {
  // Every block is touched or inserted, deepest first, then what is too much is evicted: the rules under
  // which
  // policies are compared in print.
  kPlain,
  // As a node does it: the hit prefix is touched and leased, room is made for all the rest, which is then
  // inserted, deepest first, and the release refreshes the prefix.
  kNode,
};

// Runs a trace through a pool of `capacity` equal slots under one of the nodes' policies. Judges policies
// in tests, in eviction_bench and in `cistern sim eviction`. nodes: the pool is split over so many, each with
// a policy of its own and the runs that the cluster's placement gives it; a chain hits as far as all its
// owners have kept it. InvalidArgument for an unknown policy, and for more nodes than slots.
absl::StatusOr<ReplayScore> ReplayPolicy(std::string_view policy, const ReplayTrace& trace, uint32_t capacity,
                                         ReplayFlow flow = ReplayFlow::kPlain, uint32_t nodes = 1);

}  // namespace cistern
