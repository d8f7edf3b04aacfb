#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/deadline_heap.h"
#include "cache_node/slot_record.h"
#include "cache_node/tail_table.h"
#include "core/clock.h"
#include "core/eviction_policy.h"
#include "core/ids.h"
#include "core/part.h"
#include "core/random.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr uint32_t kPutsMax = 65536;  // Reserved slots of one shard.
inline constexpr uint32_t kPutsPerPeerMax = 32768;

enum class PutState : uint8_t {
  kOffered,    // Slot reserved, nothing under way.
  kReceiving,  // Payload of request `request_id` goes into the slot.
  kQueued,     // To be pulled for a put frame; `request_id` is frame and part.
  kPulling,    // A pull into the slot is under way for it.
  kArrived,    // Bytes are there and agree with their checksum; the frame's last part makes all visible.
};

// Slots that writers were given and have not filled. Each belongs to one peer, has a deadline, and is named
// by an id of one use: (row, nonce), and the row knows the slot, whose generation stays odd meanwhile. The
// table only remembers; whoever removes a row publishes or abandons its slot. Owner: NodeShard. Thread: the
// shard's. Rows are pooled: no allocation after warm-up.
class PutTable {
 public:
  struct Row {
    uint64_t put_id = 0;  // 0: free.
    PeerId peer = 0;
    PutState state = PutState::kOffered;
    SlotId slot = kNoSlot;
    uint32_t length = 0;
    uint32_t depth = 0;
    UseId use = 0;  // The request it belongs to, for the eviction policy.
    Nanos deadline = 0;
    uint64_t request_id = 0;
    PartKey key{};
    LayoutId layout{};
    TailMark tail{};
    uint32_t previous = UINT32_MAX, next = UINT32_MAX;  // Rows of the peer.
  };

  explicit PutTable(Random& random) : random_(random) {}

  bool HasRoom(PeerId peer) const;
  // HasRoom(row.peer). Returns the put id.
  uint64_t Add(const Row& row);
  // Only for the peer that was given the id.
  std::optional<uint32_t> Find(PeerId peer, uint64_t put_id) const;
  void SetState(uint32_t index, PutState state, uint64_t request_id) {
    rows_[index].state = state;
    rows_[index].request_id = request_id;
  }
  void Remove(uint32_t index);

  std::optional<uint32_t> Due(Nanos now) const;
  // Gives a row another deadline.
  void Move(uint32_t index, Nanos deadline);
  std::optional<uint32_t> AnyOf(PeerId peer) const;
  Nanos next_deadline() const { return deadlines_.next(); }
  const Row& row(uint32_t index) const { return rows_[index]; }
  uint32_t size() const { return size_; }

 private:
  static constexpr uint32_t kIndexBits = 17;  // kPutsMax rows, counted from 1.
  struct PeerRows {
    uint32_t head = UINT32_MAX;
    uint32_t count = 0;
  };
  Random& random_;
  std::vector<Row> rows_;
  std::vector<uint32_t> free_;
  DeadlineHeap deadlines_;
  absl::flat_hash_map<PeerId, PeerRows> peers_;
  uint32_t size_ = 0;
};

}  // namespace cistern
