#include "cache_node/run_heat.h"

#include <algorithm>

namespace cistern {

const char* RunHeat::TemperatureOf(Nanos idle) {
  return idle <= kHotWithin ? "hot" : idle <= kWarmWithin ? "warm" : "cold";
}

uint64_t RunHeat::Used(const BlockHash& run, uint32_t blocks, Nanos now) {
  const auto there = places_.find(run);
  if (there != places_.end()) {
    Row& row = rows_[there->second];
    row.blocks = std::max(row.blocks, blocks);
    row.used_at = now;
    return ++row.uses;
  }
  if (rows_.size() < kRunsMax) {
    places_[run] = static_cast<uint32_t>(rows_.size());
    rows_.push_back({.run = run, .blocks = blocks, .uses = 1, .used_at = now});
    return 1;
  }
  size_t least = hand_;
  for (size_t i = 1; i < kLookedAt; ++i) {
    const size_t at = (hand_ + i) % kRunsMax;
    // Cold ones first, whatever they once were.
    const auto worth = [now](const Row& row) { return now - row.used_at > kWarmWithin ? 0 : row.uses; };
    if (worth(rows_[at]) < worth(rows_[least])) least = at;
  }
  hand_ = (hand_ + kLookedAt) % kRunsMax;
  places_.erase(rows_[least].run);
  places_[run] = static_cast<uint32_t>(least);
  rows_[least] = {.run = run, .blocks = blocks, .uses = 1, .used_at = now};
  return 1;
}

std::vector<RunStats> RunHeat::Top(size_t max, Nanos now) const {
  std::vector<const Row*> order;
  for (const Row& row : rows_) order.push_back(&row);
  const size_t count = std::min(max, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
      [](const Row* a, const Row* b) { return a->uses != b->uses ? a->uses > b->uses : a->run < b->run; });
  std::vector<RunStats> top;
  for (size_t i = 0; i < count; ++i) {
    const Nanos idle = std::max<Nanos>(now - order[i]->used_at, 0);
    top.push_back({.run = ToHex(order[i]->run, 8),
                   .blocks = order[i]->blocks,
                   .uses = order[i]->uses,
                   .idle_ms = static_cast<uint64_t>(idle / kMillisecond),
                   .temperature = TemperatureOf(idle)});
  }
  return top;
}

RunHeat::Counts RunHeat::Count(Nanos now) const {
  Counts counts;
  for (const Row& row : rows_) {
    const Nanos idle = now - row.used_at;
    ++(idle <= kHotWithin ? counts.hot : idle <= kWarmWithin ? counts.warm : counts.cold);
  }
  return counts;
}

}  // namespace cistern
