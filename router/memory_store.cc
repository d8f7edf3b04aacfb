#include "router/state_store.h"

namespace cistern {

absl::StatusOr<std::map<std::string, std::string>> MemoryStateStore::LoadAll() {
  if (!failure_.ok()) return failure_;
  return values_;
}

absl::Status MemoryStateStore::Commit(const std::vector<StateChange>& changes) {
  if (!failure_.ok()) return failure_;
  if (changes.size() > kStateChangesMax)
    return absl::InvalidArgumentError("more than kStateChangesMax changes");
  for (const StateChange& change : changes) {
    if (change.value) {
      values_[change.key] = *change.value;
    } else {
      values_.erase(change.key);
    }
  }
  return absl::OkStatus();
}

}  // namespace cistern
