#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cistern {

using EntryId = uint32_t;  // Dense, small: policies keep their state in vectors indexed by it.

// Chooses what to drop. One instance a pool of equal slots; the same code runs in nodes and in `cistern sim
// eviction`. One thread. No call allocates after the vectors have grown to the pool's size. Order contract:
// within one request the caller touches and inserts the deepest block first, so a parent is always more
// recent than its children.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  // A new entry; `ghost_key` (hash prefix) lets the policy recognise what it evicted before. depth: block
  // index in its chain.
  virtual void Insert(EntryId id, uint64_t ghost_key, uint32_t depth) = 0;
  virtual void Touch(EntryId id) = 0;
  // Used on by the request that touched it before (RELEASE of a plan): moves like a touch, but is no reuse.
  virtual void Refresh(EntryId id) { Touch(id); }
  // Removed for another reason than eviction (dropped, corrupt, slab moved).
  virtual void Erase(EntryId id) = 0;
  // The entry to drop next among those `may_evict` allows, or nothing. At most kVictimScanMax candidates are
  // looked at. The caller then evicts it and calls Evicted.
  virtual std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) = 0;
  virtual void Evicted(EntryId id) = 0;
};
inline constexpr int kVictimScanMax = 4096;

// "lru", "s3fifo", "gdsf", "lru2", ...; InvalidArgument names those there are.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   uint32_t capacity_entries);

}  // namespace cistern
