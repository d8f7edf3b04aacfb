#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/eviction/replay.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr int64_t kMillisecondsARequest = 1000;  // Where nothing is said of times.

}  // namespace

ReplayTrace MakeReplayTrace(const TraceIds& requests, const std::vector<int64_t>& times_ms) {
  ReplayTrace trace;
  trace.requests = requests;
  absl::flat_hash_map<uint32_t, uint32_t> dense;
  for (std::vector<uint32_t>& chain : trace.requests) {
    for (uint32_t& id : chain) id = dense.emplace(id, static_cast<uint32_t>(dense.size())).first->second;
  }
  trace.unique = static_cast<uint32_t>(dense.size());
  int64_t latest = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    latest =
        std::max(latest, i < times_ms.size() ? times_ms[i] : static_cast<int64_t>(i) * kMillisecondsARequest);
    trace.times_ms.push_back(latest);
  }
  return trace;
}

absl::StatusOr<ReplayTrace> LoadReplayTrace(const std::string& path, TraceReader::BrokenLine broken) {
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(path));
  absl::flat_hash_map<uint64_t, uint32_t> numbers;
  TraceIds requests;
  std::vector<int64_t> times;
  for (TraceRequest request; reader->Next(request, broken);) {
    requests.emplace_back();
    for (const uint64_t id : request.hash_ids) {
      requests.back().push_back(numbers.emplace(id, static_cast<uint32_t>(numbers.size())).first->second);
    }
    times.push_back(request.timestamp_ms);
    if (numbers.size() > kPolicyEntriesMax) {
      return absl::InvalidArgumentError(path + ": more blocks than kPolicyEntriesMax; cut it into parts");
    }
  }
  CISTERN_RETURN_IF_ERROR(reader->status());
  if (numbers.empty()) return absl::InvalidArgumentError(path + ": no request with hash_ids in it");
  // The delta form goes session by session.
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&times](size_t a, size_t b) { return times[a] < times[b]; });
  TraceIds sorted;
  std::vector<int64_t> sorted_times;
  for (const size_t i : order) {
    sorted.push_back(std::move(requests[i]));
    sorted_times.push_back(times[i]);
  }
  return MakeReplayTrace(sorted, sorted_times);
}

}  // namespace cistern
