#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cistern/client.h"
#include "client/cli/options.h"
#include "client/cli/samples.h"
#include "core/trace_reader.h"

namespace cistern {

inline constexpr std::chrono::milliseconds kReplayDeadline{2000};
inline constexpr std::chrono::milliseconds kLateDeadlineMin{200};  // Shorter deadlines are not judged.
inline constexpr size_t kReplayChunkBytes = size_t{32} << 20;      // Moved by one Load or Store call.
inline constexpr size_t kReplayChunkBlocksMax = 4096;

// What a replay drives: a cluster through Client, or a fake in tests. One request at a time; one thread.
class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  // Takes the blocks of one request; the calls below are about them.
  virtual Status Begin(const TraceRequest& request) = 0;
  // What seeds the content of a block: a function of the block's hash alone.
  virtual uint64_t Seed(uint32_t block) const = 0;
  // Leading blocks that are cached; holds them until End.
  virtual Result<uint32_t> Plan() = 0;
  virtual LoadReport Load(uint32_t first, std::span<const Page> pages) = 0;
  virtual StoreReport Store(uint32_t first, std::span<const ConstPage> pages) = 0;
  virtual void End() = 0;
};

struct ReplayTotals {
  uint64_t requests = 0, blocks = 0, ideal_hit_blocks = 0, hit_blocks = 0;
  uint64_t verified_parts = 0;  // Compared and right.
  uint64_t wrong_parts = 0;     // Reported OK, and wrong.
  uint64_t failed_parts = 0;    // Blocks of a hit that did not load, and blocks that could not be stored.
  uint64_t refused_parts = 0;   // Blocks that the cache had no room for: an answer, not a failure.
  uint64_t late_calls = 0;      // Came back more than 10 % past their deadline.
  uint64_t broken_lines = 0;
  bool interrupted = false;  // Ctrl-C ended it.
  uint64_t bytes_read = 0, bytes_written = 0;
  Samples plan_us, load_us, store_us;  // One sample a call.
  double seconds = 0;
};

// Replays a trace: per request find the cached prefix, load and check it, store the rest (visible before the
// next request is looked at), let go. Counts what a user of the cache would see. Owner: the command; one
// thread.
class Replay {
 public:
  // `load_memory` and `store_memory` hold kReplayChunkBytes each, and outlive this.
  Replay(const ReplayOptions& options, ReplayTarget& target, std::byte* load_memory, std::byte* store_memory);
  // To the trace's end or options.requests. An error is one of the file; what was done until then is in
  // totals().
  absl::Status Run(TraceReader& trace);
  ReplayTotals& totals() { return totals_; }
  // Reasons of failed and refused blocks: name -> count.
  const std::vector<std::pair<std::string, uint64_t>>& reasons() const { return reasons_; }

 private:
  void One(const TraceRequest& request);
  uint32_t LoadHit(const TraceRequest& request, uint32_t hit);
  void StoreRest(uint32_t first, uint32_t blocks);
  void Verify(const TraceRequest& request, uint32_t first, const LoadReport& report);
  void CountIdeal(const TraceRequest& request);
  void CountReason(PageResult result, uint64_t by = 1);
  void WaitForStamp(const TraceRequest& request);
  void ShowProgress(bool last);
  // Adds the time since `begin` to `samples` and judges it.
  void Finished(std::chrono::steady_clock::time_point begin, Samples& samples);

  const ReplayOptions options_;
  ReplayTarget& target_;
  std::byte* const load_memory_;
  std::byte* const store_memory_;
  const size_t chunk_blocks_;
  std::vector<Page> load_pages_;        // Page i lies at load_memory_ + i * bytes_per_block.
  std::vector<ConstPage> store_pages_;  // The same in store_memory_.
  absl::flat_hash_set<uint64_t> seen_;
  ReplayTotals totals_;
  std::vector<std::pair<std::string, uint64_t>> reasons_;
  std::chrono::steady_clock::time_point started_, shown_;
  int64_t first_stamp_ms_ = 0;
  const bool progress_;
};

}  // namespace cistern
