#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cistern {

using EntryId = uint32_t;  // Dense, small: policies keep their state in vectors indexed by it.
inline constexpr EntryId kNoEntry = UINT32_MAX;
inline constexpr uint32_t kPolicyEntriesMax = uint32_t{1} << 31;

// Names a request to the policy that gave it. Old names are forgotten (kUsesMax later ones): what is inserted
// under one is taken for a request of its own.
using UseId = uint32_t;
inline constexpr uint32_t kUsesMax = 1024;

// Coarse time: steps of 2^23 ns (8.4 ms); differences count, so it may wrap.
using PolicyTick = uint32_t;

// What one request asks of a pool: its chain, as far as it is this pool's.
struct PolicyRequest {
  PolicyTick tick = 0;
  absl::Span<const EntryId> here;      // Its entries from the first on, up to the first that is missing.
  absl::Span<const uint64_t> missing;  // Keys (hash prefixes) of all that follow.
};

// What a policy is told of a new entry.
struct EntryFacts {
  uint64_t key = 0;    // Hash prefix, the same each time the entry comes back.
  uint32_t depth = 0;  // Block index in its chain.
  uint32_t bytes = 1;
};

// Chooses what to drop. One instance a pool of equal slots; the same code runs in nodes and in `cistern sim
// eviction`. One thread. No call allocates after the vectors have grown to the pool's size. Order contract:
// within one request the caller touches and inserts the deepest block first, so a parent is always more
// recent than its children; requests may interleave, each names itself by its UseId.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  // A request has come. Touches nothing: the caller touches and inserts under the name that this returns.
  virtual UseId Begin(const PolicyRequest& /*request*/) { return 0; }
  virtual void Insert(UseId use, EntryId id, const EntryFacts& facts) = 0;
  // depth: as it was inserted.
  virtual void Touch(UseId use, EntryId id, uint32_t depth) = 0;
  // Used on by the request that touched it before (RELEASE of a plan): moves like a touch, but is no reuse.
  virtual void Refresh(EntryId id) { Touch(0, id, 0); }
  // Removed for another reason than eviction (dropped, corrupt, slab moved).
  virtual void Erase(EntryId id) = 0;
  // The entry to drop next among those `may_evict` allows, or nothing. At most kVictimScanMax candidates are
  // looked at. The caller then evicts it and calls Evicted.
  virtual std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) = 0;
  // Those that go next while nothing is used, in their order, until `visit` says false. A policy that finds
  // its victims only when they are asked for names none.
  virtual void Next(absl::FunctionRef<bool(EntryId)> /*visit*/) const {}
  // key: as it was inserted; policies do not keep it.
  virtual void Evicted(EntryId id, uint64_t key) = 0;
  // Bytes it holds for itself, entries, ghosts and tables.
  virtual uint64_t memory_bytes() const = 0;
};
inline constexpr int kVictimScanMax = 4096;

// The policies that nodes can run.
inline constexpr std::array<const char*, 3> kNodePolicies = {"slru", "lru", "cistern"};
inline constexpr const char* kEvictionPolicyDefault = "slru";  // What they run unasked.
// One of kNodePolicies; InvalidArgument names them.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   uint32_t capacity_entries);

}  // namespace cistern
