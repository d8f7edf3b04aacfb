#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "cache_node/deadline_heap.h"
#include "cache_node/slot_record.h"
#include "core/clock.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr Nanos kGrantTtlMax = 30 * kSecond;
inline constexpr Nanos kLeaseGrace =
    250 * kMillisecond;  // Node's end of a lease is this much later than the client's.
inline constexpr uint32_t kShardPlansMax = 16384;  // Plans and payload holds of one shard.
inline constexpr uint32_t kPlansPerPeerMax = 4096;
inline constexpr size_t kSlotsRetainedMax = 4u << 20;  // Capacity that idle plans may keep, 4 bytes each.

// Which leased slots belong to whom, until when. Two kinds of rows:
// - a plan: named by its peer and plan id, renewable, ends at grant + ttl + grace;
// - a hold: the slots of one reply whose payload the transport still reads; ends when it is sent. Its
// deadline says when a
//   peer that does not take it is cut off.
// The table only remembers: whoever adds a row has leased its slots, and unleases what a row gave back.
// Owner: NodeShard. Thread: the shard's. Rows are pooled with their capacity: no allocation after warm-up.
class LeaseTable {
 public:
  enum class Kind : uint8_t { kPlan, kHold };
  struct Row {
    Kind kind = Kind::kPlan;
    bool live = false;
    PeerId peer = 0;
    uint64_t plan_id = 0;
    Nanos end = 0;
    uint32_t nonce = 0;
    uint32_t previous = UINT32_MAX, next = UINT32_MAX;  // Rows of the peer.
    std::vector<SlotId> slots;                          // Chain order.
  };

  // False when the table or the peer's share of it is full, or the peer has a plan of this id.
  bool HasRoom(PeerId peer) const;
  std::optional<uint32_t> AddPlan(PeerId peer, uint64_t plan_id, absl::Span<const SlotId> slots, Nanos end);
  // Returns the cookie for the transport, never 0; 0 when full.
  uint64_t AddHold(PeerId peer, absl::Span<const SlotId> slots, Nanos end);

  bool HasPlan(PeerId peer, uint64_t plan_id) const { return by_plan_.contains({peer, plan_id}); }
  // A plan that has not ended at `now`.
  std::optional<uint32_t> FindPlan(PeerId peer, uint64_t plan_id, Nanos now) const;
  // Never shortens a lease.
  void Renew(uint32_t row, Nanos end);
  std::optional<uint32_t> FindHold(uint64_t cookie) const;
  // Takes the row away; its slots are now in `slots`.
  void Remove(uint32_t row, std::vector<SlotId>& slots);

  // First row that is due, if any. Holds due stay until removed or moved.
  std::optional<uint32_t> Due(Nanos now) const;
  std::optional<uint32_t> AnyOf(PeerId peer) const;
  Nanos next_end() const { return ends_.next(); }
  const Row& row(uint32_t index) const { return rows_[index]; }

  uint32_t plans() const { return plans_; }
  uint32_t holds() const { return holds_; }

 private:
  struct PeerRows {
    uint32_t head = UINT32_MAX;
    uint32_t count = 0;
  };
  std::optional<uint32_t> Add(Kind kind, PeerId peer, uint64_t plan_id, absl::Span<const SlotId> slots,
                              Nanos end);

  std::vector<Row> rows_;
  std::vector<uint32_t> free_;
  DeadlineHeap ends_;
  absl::flat_hash_map<PeerId, PeerRows> peers_;
  absl::flat_hash_map<std::pair<PeerId, uint64_t>, uint32_t> by_plan_;
  uint32_t plans_ = 0;
  uint32_t holds_ = 0;
  uint32_t next_nonce_ = 1;
  size_t retained_ = 0;  // Capacity of idle rows' slots.
};

}  // namespace cistern
