#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cistern/client.h"
#include "client/cli/options.h"
#include "client/cli/replay.h"
#include "core/tail_retention.h"
#include "core/trace_reader.h"

namespace cistern {

// What one group of a layout moved.
struct GroupTotals {
  LayoutGroup group;
  uint64_t verified_parts = 0;
  uint64_t bytes_written = 0;
};

// The blocks that prompts fill: what a hit can be in truth.
struct WholeTotals {
  uint64_t blocks = 0;
  uint64_t ideal_hit_blocks = 0;  // Leading ones that an earlier prompt had.
  uint64_t hit_blocks = 0;
};

// Replays a trace in a layout of several groups: per request find the hit by the hit rule, load and check the
// history and the tail at its end, store the rest and the tails that the retention policy names. An id of the
// trace counts as one whole block of its tokens, and as if one more token followed the last; but a prompt
// ends with its last whole block, so that is where its tail is, and what WholeTotals counts. Owner: the
// command; one thread.
class GroupReplay {
 public:
  // Memory for one call's pages: PageBytes(options' layout).
  struct Memory {
    std::byte* load = nullptr;
    std::byte* store = nullptr;
    size_t bytes = 0;
  };
  GroupReplay(const ReplayOptions& options, const TailRetention& retention, Client& client, Layout layout,
              const Memory& memory);
  // What one call needs: some blocks, or a whole tail at `tokens`.
  static size_t MemoryFor(const Layout& layout);

  absl::Status Run(TraceReader& trace);
  ReplayTotals& totals() { return totals_; }
  const std::vector<GroupTotals>& groups() const { return groups_; }
  const std::vector<std::pair<std::string, uint64_t>>& reasons() const { return reasons_; }
  const WholeTotals& whole() const { return whole_; }
  uint64_t tails_stored() const { return tails_stored_; }
  uint64_t junctions_stored() const { return junctions_stored_; }

 private:
  void One(const TraceRequest& request);
  bool Begin(const TraceRequest& request);
  uint32_t LoadHistory(const TraceRequest& request, const Hit& hit);
  bool LoadTail(const TraceRequest& request, const Hit& hit);
  void StoreHistory(uint32_t first);
  void StoreTails(const Hit& hit, uint64_t hit_tokens);
  // Compares a page's parts; `block` is the one whose hash seeds them.
  void Verify(const TraceRequest& request, const std::vector<PagePart>& parts, uint32_t block,
              std::byte* page);
  uint64_t Seed(uint32_t block, const PagePart& part) const;
  void Fill(const std::vector<PagePart>& parts, uint32_t block, std::byte* page) const;
  void CountStored(const std::vector<PagePart>& parts, PageResult result);
  void CountReason(const std::string& name);
  void Finished(std::chrono::steady_clock::time_point begin, Samples& samples);

  const ReplayOptions options_;
  const TailRetention retention_;
  Client& client_;
  const Layout layout_;
  const Memory memory_;
  CallOptions within_;
  Chain chain_;
  uint64_t prompt_tokens_ = 0;
  uint64_t whole_tokens_ = 0;  // Of its whole blocks.
  std::vector<PagePart> block_parts_;
  size_t block_bytes_ = 0;
  std::vector<uint32_t> tokens_;
  std::vector<WantedTail> wanted_;
  std::vector<GroupTotals> groups_;
  absl::flat_hash_set<uint64_t> seen_;
  ReplayTotals totals_;
  WholeTotals whole_;
  uint64_t tails_stored_ = 0;
  uint64_t junctions_stored_ = 0;
  std::vector<std::pair<std::string, uint64_t>> reasons_;
};

}  // namespace cistern
