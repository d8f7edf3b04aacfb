#include "core/tail_simulation.h"

#include <algorithm>

namespace cistern {

double TailSimulation::Totals::BytesOverHistory(uint64_t block_bytes, uint64_t tail_bytes) const {
  const double history = static_cast<double>(unique_blocks) * static_cast<double>(block_bytes);
  return history <= 0 ? 0 : 1 + static_cast<double>(tails) * static_cast<double>(tail_bytes) / history;
}

void TailSimulation::Request(absl::Span<const uint64_t> ids, uint64_t prompt_tokens) {
  ids = ids.subspan(0, std::min<uint64_t>(ids.size(), prompt_tokens / block_tokens_));
  const uint64_t max_tokens = prompt_tokens == 0 ? 0 : prompt_tokens - 1;
  ++totals_.requests;
  totals_.blocks += ids.size();
  size_t history = 0;
  while (history < ids.size() && blocks_.contains(ids[history])) ++history;
  totals_.history_blocks += history;
  const size_t usable = std::min<size_t>(history, max_tokens / block_tokens_);
  size_t hit = usable;
  while (hit > 0 && !tails_.contains(ids[hit - 1])) --hit;
  totals_.hit_blocks += hit;
  blocks_.insert(ids.begin(), ids.end());
  totals_.unique_blocks = blocks_.size();
  ChooseTails(retention_,
              {.hit_tokens = uint64_t{hit} * block_tokens_,
               .history_tokens = uint64_t{usable} * block_tokens_,
               .max_tokens = std::min<uint64_t>(max_tokens, uint64_t{ids.size()} * block_tokens_),
               .align_tokens = block_tokens_},
              wanted_);
  for (const WantedTail& tail : wanted_) {
    if (!tails_.insert(ids[tail.tokens / block_tokens_ - 1]).second) continue;
    ++totals_.tails;
    totals_.junctions += tail.junction;
  }
}

}  // namespace cistern
