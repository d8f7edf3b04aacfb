#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "core/tail_retention.h"

namespace cistern {

// What a memory without end would hit of a trace in a layout with tails, under one retention policy: the
// policy code of the real path (ChooseTails) and the hit rule, without bytes. Only whole blocks of the trace
// count, as only they can be stored. Owner: the caller; one thread.
class TailSimulation {
 public:
  struct Totals {
    uint64_t requests = 0;
    uint64_t blocks = 0;          // Whole blocks asked for.
    uint64_t history_blocks = 0;  // Of these, leading ones whose history was there: the ideal.
    uint64_t hit_blocks = 0;      // ... up to a boundary that had its tail.
    uint64_t unique_blocks = 0;   // History stored.
    uint64_t tails = 0;           // Tails stored.
    uint64_t junctions = 0;       // Of these, where prompts part.
    double HitRatio() const {
      return blocks == 0 ? 0 : static_cast<double>(hit_blocks) / static_cast<double>(blocks);
    }
    double IdealRatio() const {
      return blocks == 0 ? 0 : static_cast<double>(history_blocks) / static_cast<double>(blocks);
    }
    // What is stored, over the history alone.
    double BytesOverHistory(uint64_t block_bytes, uint64_t tail_bytes) const;
  };

  TailSimulation(const TailRetention& retention, uint32_t block_tokens)
      : retention_(retention), block_tokens_(block_tokens) {}
  // ids: one a block, each naming its block and all before it; a part-filled last one may be among them.
  void Request(absl::Span<const uint64_t> ids, uint64_t prompt_tokens);
  const Totals& totals() const { return totals_; }

 private:
  const TailRetention retention_;
  const uint32_t block_tokens_;
  absl::flat_hash_set<uint64_t> blocks_;  // Ids whose history is stored.
  absl::flat_hash_set<uint64_t> tails_;   // Ids of the blocks that end at a stored tail.
  std::vector<WantedTail> wanted_;
  Totals totals_;
};

}  // namespace cistern
