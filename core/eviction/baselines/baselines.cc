#include "core/eviction/baselines/baselines.h"

#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/eviction/baselines/trace_cache.h"

namespace cistern {
namespace {

using Maker = std::unique_ptr<TraceCache> (*)(uint32_t capacity, uint32_t blocks);
constexpr std::pair<std::string_view, Maker> kBaselines[] = {
    {"fifo", MakeFifo}, {"s3fifo", MakeS3Fifo}, {"lfu", MakeLfu},
    {"gdsf", MakeGdsf}, {"lru2", MakeLru2},     {"second-sighting", MakeSecondSighting},
};

ReplayScore ReplayCache(TraceCache& cache, const ReplayTrace& trace) {
  ReplayScore score;
  for (const std::vector<uint32_t>& chain : trace.requests) {
    size_t hit = 0;
    while (hit < chain.size() && cache.Has(chain[hit])) ++hit;
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (size_t i = chain.size(); i-- > 0;) cache.Use(chain[i], static_cast<uint32_t>(i));
  }
  return score;
}

// When each reference's block is used next, in references; in the order of the trace.
std::vector<uint64_t> NextUses(const ReplayTrace& trace) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  std::vector<uint64_t> next;
  for (const std::vector<uint32_t>& chain : trace.requests) next.resize(next.size() + chain.size(), kNever);
  std::vector<uint64_t> seen(trace.unique, kNever);
  size_t at = next.size();
  for (size_t r = trace.requests.size(); r-- > 0;) {
    const std::vector<uint32_t>& chain = trace.requests[r];
    for (size_t i = chain.size(); i-- > 0;) {
      --at;
      next[at] = std::exchange(seen[chain[i]], r);
    }
  }
  return next;
}

}  // namespace

const std::vector<std::string>& SimulatedPolicies() {
  static const std::vector<std::string> names = {
      "lru", "slru", "fifo", "s3fifo", "lfu", "gdsf", "second-sighting", "lru2", "cistern", "optimum"};
  return names;
}

absl::StatusOr<ReplayScore> SimulatePolicy(std::string_view policy, const ReplayTrace& trace,
                                           uint32_t capacity) {
  if (absl::c_linear_search(kNodePolicies, policy)) return ReplayPolicy(policy, trace, capacity);
  if (policy == "optimum") return ReplayOptimum(trace, capacity);
  for (const auto& [name, make] : kBaselines) {
    if (name == policy) return ReplayCache(*make(capacity, trace.unique), trace);
  }
  return absl::InvalidArgumentError(absl::StrCat("no eviction policy \"", std::string(policy),
                                                 "\"; there are ", absl::StrJoin(SimulatedPolicies(), ", ")));
}

ReplayScore ReplayOptimum(const ReplayTrace& trace, uint32_t capacity) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  struct Rank {  // The last goes first.
    uint64_t next_use;
    uint32_t depth, block;
    bool operator<(const Rank& other) const {
      return std::tie(next_use, depth, block) < std::tie(other.next_use, other.depth, other.block);
    }
  };
  const std::vector<uint64_t> next = NextUses(trace);
  std::vector<uint64_t> use_of(trace.unique, kNever);  // Next use of what is here; kNever: not here.
  std::set<Rank> here;
  ReplayScore score;
  size_t first = 0;
  for (const std::vector<uint32_t>& chain : trace.requests) {
    size_t hit = 0;
    while (hit < chain.size() && use_of[chain[hit]] != kNever) ++hit;
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (size_t i = chain.size(); i-- > 0;) {
      const Rank old{use_of[chain[i]], static_cast<uint32_t>(i), chain[i]};
      if (old.next_use != kNever) here.erase(old);
      use_of[chain[i]] = next[first + i];
      if (next[first + i] == kNever) continue;  // Nobody wants it any more: not kept.
      here.insert({next[first + i], static_cast<uint32_t>(i), chain[i]});
      if (here.size() <= capacity) continue;
      use_of[here.rbegin()->block] = kNever;
      here.erase(std::prev(here.end()));
    }
    first += chain.size();
  }
  return score;
}

ReplayScore ReplaySlidingTtl(const ReplayTrace& trace, int64_t ttl_ms) {
  std::vector<int64_t> used(trace.unique, -1);  // When it was used last.
  ReplayScore score;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const std::vector<uint32_t>& chain = trace.requests[r];
    const int64_t now = trace.times_ms[r];
    size_t hit = 0;
    while (hit < chain.size() && used[chain[hit]] >= 0 && now - used[chain[hit]] <= ttl_ms) {
      ++hit;
    }
    score.blocks += chain.size();
    score.hit_blocks += hit;
    for (const uint32_t block : chain) used[block] = now;
  }
  return score;
}

}  // namespace cistern
