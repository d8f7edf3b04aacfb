#include "core/eviction/lru_policy.h"

namespace cistern {

void LruPolicy::Insert(UseId /*use*/, EntryId id, const EntryFacts& /*facts*/) {
  order_.PushNewest(links_, id);
}

void LruPolicy::Touch(UseId /*use*/, EntryId id, uint32_t /*depth*/) {
  order_.Remove(links_, id);
  order_.PushNewest(links_, id);
}

void LruPolicy::Erase(EntryId id) { order_.Remove(links_, id); }

std::optional<EntryId> LruPolicy::Victim(absl::FunctionRef<bool(EntryId)> may_evict) {
  EntryId id = order_.oldest();
  for (int seen = 0; id != kNoEntry && seen < kVictimScanMax; ++seen, id = links_.At(id).newer) {
    if (may_evict(id)) return id;
  }
  return std::nullopt;
}

void LruPolicy::Next(absl::FunctionRef<bool(EntryId)> visit) const {
  EntryId id = order_.oldest();
  while (id != kNoEntry && visit(id)) id = links_.At(id).newer;
}

}  // namespace cistern
