#pragma once

#include <array>
#include <cstdint>

#include "core/part.h"

namespace cistern {

// Exact counters of one shard (F60). Plain integers: one thread writes, snapshots go out through the mailbox.
struct NodeCounters {
  // Blocks. lookup = hit + miss, by LOOKUP without kFlagProbe and by PLAN.
  uint64_t lookup_blocks = 0;
  uint64_t hit_blocks = 0;
  uint64_t miss_blocks = 0;
  uint64_t probe_blocks = 0;  // Asked by operators' probes; in none of the above.

  // Parts by outcome, per kind of request.
  using ByResult = std::array<uint64_t, kPartResultMax + 1>;
  ByResult plan_parts{};
  ByResult read_parts{};
  ByResult offer_parts{};
  ByResult put_parts{};
  static void Count(ByResult& results, PartResult result, uint64_t by = 1) {
    results[static_cast<uint8_t>(result)] += by;
  }

  uint64_t collisions_rejected = 0;  // Equal hash, other fingerprint (F01).
  uint64_t layout_mismatches = 0;    // F05
  uint64_t corrupt_puts = 0;         // CRC of the bytes that arrived is not the announced one.
  uint64_t put_bytes = 0;
  uint64_t inline_bytes = 0;   // Sent as payload.
  uint64_t evicted_parts = 0;  // By a policy, to make room.
  uint64_t evicted_bytes = 0;
  uint64_t dropped_parts = 0;         // By DROP.
  uint64_t expired_parts = 0;         // Their time to live ended.
  uint64_t quota_rejected_parts = 0;  // Over a tenant's quota, or its hard pins over what may be pinned.
  uint64_t quota_rows_left_out = 0;   // Of the manifest at the start: nothing limits these tenants.
  uint64_t pins_refused = 0;          // Part of it: the latter.
  uint64_t slabs_moved = 0;           // To another slot size.
  uint64_t slab_evicted_parts = 0;    // Part of evicted_parts: dropped because their slab moved.
  uint64_t no_space = 0;              // Reservations that reclaim could not satisfy.
  uint64_t plans = 0;
  uint64_t staged_plans = 0;    // Waited for parts from the disk.
  uint64_t held_offers = 0;     // Waited for room in the disk log.
  uint64_t leases_expired = 0;  // Plans that ended by time.
  uint64_t puts_expired = 0;    // Reserved slots taken back at their deadline.
  uint64_t puts_abandoned = 0;  // Freed by ABORT or by their writer's end.
  uint64_t peers_accepted = 0;
  uint64_t peers_refused = 0;
  uint64_t peers_fenced = 0;  // By this shard: stuck, or its ticket ended.
  uint64_t version_refused = 0;
  uint64_t algorithm_refused = 0;
  uint64_t tickets_expired = 0;
  uint64_t bad_frames = 0;  // Bodies that did not decode, frames a node does not take.
  uint64_t wrong_shard_blocks = 0;
  uint64_t denied_requests = 0;
};

}  // namespace cistern
