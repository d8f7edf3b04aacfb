#include "core/eviction/slru_policy.h"

#include <algorithm>

namespace cistern {
namespace {

// An entry is watched from .7 to 1.5 times the age at which it would go: what it does there says whether it
// pays to keep such entries longer. Younger ones would come back anyway.
constexpr double kWatchFrom = .7, kWatchTo = 1.5;
constexpr double kTurnoverStep = .01;  // Of a victim's wait, in turnover_.
// Learning goes in eighths of a pool's turnover, a step a fifth of the way, and forgets half in eight
// turnovers.
constexpr uint32_t kStepsATurnover = 8;
constexpr double kStep = .2;
constexpr double kKept = .98923;  // 2^(-1/64)
// As if a quarter of a pool had been watched that came back as often as what was used once: with less to go
// by the order stays that of LRU.
constexpr double kPrior = .25;

}  // namespace

SlruPolicy::SlruPolicy(uint32_t capacity_entries)
    : links_(capacity_entries), ghosts_(std::max(capacity_entries, kGhostsMin)) {
  stamps_.reserve(capacity_entries);
}

UseId SlruPolicy::Begin(const PolicyRequest& request) {
  // A block's ghost is newer than those of its children, so what is known is the front.
  const auto unknown = std::partition_point(request.missing.begin(), request.missing.end(),
                                            [this](uint64_t key) { return ghosts_.Has(key); });
  if (unknown == request.missing.begin()) return 0;
  const UseId id = next_use_;
  next_use_ = next_use_ == UINT32_MAX ? 1 : next_use_ + 1;
  uses_[id % kUsesMax] = {.id = id, .known_key = *(unknown - 1)};
  return id;
}

void SlruPolicy::Put(EntryId id, SegmentIndex segment) {
  stamps_[id] = StampFor(segment);
  segments_[segment].order.PushNewest(links_, id);
}

void SlruPolicy::Insert(UseId use, EntryId id, const EntryFacts& facts) {
  if (id >= stamps_.size()) stamps_.resize(size_t{id} + 1);
  if (const Stamp ghost = ghosts_.Take(facts.key); ghost != 0) Observe(ghost, /*came_back=*/true);
  Use& of = uses_[use % kUsesMax];
  const bool is_known = use != 0 && of.id == use;
  if (is_known && of.known_key == facts.key) of.reached_known = true;
  ++clock_;
  Put(id, is_known && of.reached_known ? kAgain : kOnce);
}

void SlruPolicy::Touch(UseId /*use*/, EntryId id, uint32_t /*depth*/) {
  Observe(stamps_[id], /*came_back=*/true);
  Remove(id);
  Put(id, kAgain);
}

void SlruPolicy::Refresh(EntryId id) {
  Remove(id);
  Put(id, SegmentOf(stamps_[id]));
}

void SlruPolicy::Erase(EntryId id) { Remove(id); }

// The longest wait first. Where two have waited alike, the one that was used once: it may be the other's
// child.
template <typename Visit>
void SlruPolicy::VisitInOrder(Visit visit) const {
  EntryId once = segments_[kOnce].order.oldest(), again = segments_[kAgain].order.oldest();
  while (once != kNoEntry || again != kNoEntry) {
    const bool takes_once = again == kNoEntry || (once != kNoEntry && WaitOf(once) >= WaitOf(again));
    EntryId& at = takes_once ? once : again;
    const EntryId id = at;
    at = links_.At(id).newer;
    if (!visit(id)) return;
  }
}

std::optional<EntryId> SlruPolicy::Victim(absl::FunctionRef<bool(EntryId)> may_evict) {
  std::optional<EntryId> victim;
  int seen = 0;
  VisitInOrder([&](EntryId id) {
    if (may_evict(id)) victim = id;
    return !victim.has_value() && ++seen < kVictimScanMax;
  });
  if (!victim.has_value()) return victim;
  const double wait = WaitOf(*victim);
  turnover_ += turnover_ == 0 ? wait : (wait - turnover_) * kTurnoverStep;
  if (clock_ - learned_at_ > size() / kStepsATurnover) Learn();
  return victim;
}

void SlruPolicy::Next(absl::FunctionRef<bool(EntryId)> visit) const { VisitInOrder(visit); }

void SlruPolicy::Evicted(EntryId id, uint64_t key) {
  const Stamp stamp = stamps_[id];
  Remove(id);
  // 0 is no ghost; the clock comes by it once in 2^31 entries.
  const Stamp pushed_out = ghosts_.Push(key, stamp == 0 ? StampFor(kOnce) | 1 : stamp);
  if (pushed_out != 0) Observe(pushed_out, /*came_back=*/false);
}

// The end of an entry's wait, in the pool and as a ghost.
void SlruPolicy::Observe(Stamp stamp, bool came_back) {
  Segment& segment = segments_[SegmentOf(stamp)];
  const double goes_at = turnover_ * segment.patience;
  const double age = AgeOf(stamp);
  if (turnover_ == 0 || age < kWatchFrom * goes_at) return;
  if (came_back && age < kWatchTo * goes_at) ++segment.came;
  segment.waited += std::min(age / goes_at, kWatchTo) - kWatchFrom;
}

// Patience is how much more often the one kind comes back than the other while it is waited for in vain: with
// it neither segment would gain by a slot of the other.
void SlruPolicy::Learn() {
  learned_at_ = clock_;
  Segment &once = segments_[kOnce], &again = segments_[kAgain];
  // Never 0 nor without end; one in ten is a first guess.
  const double mean = (once.came + again.came + 1) / (once.waited + again.waited + 10);
  const double prior = kPrior * size();
  const auto rate = [=](const Segment& of) { return (of.came + prior * mean) / (of.waited + prior); };
  const double patience = std::clamp(rate(again) / rate(once), 1.0, kPatienceMax);
  again.patience += kStep * (patience - again.patience);
  for (Segment& segment : segments_) {
    segment.came *= kKept;
    segment.waited *= kKept;
  }
}

uint64_t SlruPolicy::memory_bytes() const {
  return links_.memory_bytes() + stamps_.size() * sizeof(Stamp) + ghosts_.memory_bytes() + sizeof(uses_);
}

}  // namespace cistern
