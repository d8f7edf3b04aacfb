#pragma once

#include "core/eviction/link_list.h"
#include "core/eviction_policy.h"

namespace cistern {

// Least recently used. The order contract of EvictionPolicy keeps chains whole: a parent is always newer than
// its children, so it goes after them. 8 bytes an entry.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(uint32_t capacity_entries) : links_(capacity_entries) {}

  std::string_view name() const override { return "lru"; }
  void Insert(UseId use, EntryId id, const EntryFacts& facts) override;
  void Touch(UseId use, EntryId id, uint32_t depth) override;
  void Erase(EntryId id) override;
  std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) override;
  void Next(absl::FunctionRef<bool(EntryId)> visit) const override;
  void Evicted(EntryId id, uint64_t /*key*/) override { Erase(id); }
  uint64_t memory_bytes() const override { return links_.memory_bytes(); }

 private:
  LinkTable links_;
  LinkList order_;
};

}  // namespace cistern
