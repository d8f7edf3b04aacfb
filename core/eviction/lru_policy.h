#pragma once

#include "core/eviction/link_list.h"
#include "core/eviction_policy.h"

namespace cistern {

// Least recently used. The order contract of EvictionPolicy keeps chains whole: a parent is always newer than
// its children, so it goes after them. 12 bytes an entry.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(uint32_t capacity_entries) : links_(capacity_entries) {}

  std::string_view name() const override { return "lru"; }
  void Insert(EntryId id, uint64_t ghost_key, uint32_t depth) override;
  void Touch(EntryId id) override;
  void Erase(EntryId id) override;
  std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) override;
  void Evicted(EntryId id) override { Erase(id); }

 private:
  LinkTable links_;
  LinkList order_{1};
};

}  // namespace cistern
