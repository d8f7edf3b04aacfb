#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/slot_record.h"
#include "core/check.h"

namespace cistern {

// Plans that wait until a tier below has brought their parts into RAM: how many each still waits for, and the
// leased slots that are kept for it meanwhile. Owner: a tier. Thread: the shard's.
class WaitGroups {
 public:
  explicit WaitGroups(size_t groups_max) : groups_max_(groups_max) {}

  // 0: groups_max are open.
  uint64_t Open() {
    if (groups_.size() >= groups_max_) return 0;
    groups_[next_];
    return next_++;
  }
  // One more part is on its way for this group.
  void Add(uint64_t id) { ++Of(id).coming; }
  // A leased slot that the group keeps until it is taken.
  void Hold(uint64_t id, SlotId slot) { Of(id).held.push_back(slot); }
  // No more parts are asked for.
  void Close(uint64_t id) {
    Group& group = Of(id);
    group.closed = true;
    if (group.coming == 0) ready_.push_back(id);
  }
  // One of its parts has come, as this leased slot, or, kNoSlot, will not come.
  void End(uint64_t id, SlotId slot) {
    Group& group = Of(id);
    if (slot != kNoSlot) group.held.push_back(slot);
    CISTERN_CHECK(group.coming > 0);
    if (--group.coming == 0 && group.closed) ready_.push_back(id);
  }
  bool HasReady() const { return !ready_.empty(); }
  // The closed group that has waited longest of those whose parts have all come or failed; `held` is now the
  // caller's.
  bool TakeReady(uint64_t& id, std::vector<SlotId>& held) {
    if (ready_.empty()) return false;
    id = ready_.front();
    ready_.pop_front();
    held = std::move(Of(id).held);
    groups_.erase(id);
    return true;
  }
  size_t open() const { return groups_.size(); }

 private:
  struct Group {
    uint32_t coming = 0;
    bool closed = false;
    std::vector<SlotId> held;
  };
  Group& Of(uint64_t id) {
    const auto it = groups_.find(id);
    CISTERN_CHECK(it != groups_.end());
    return it->second;
  }

  const size_t groups_max_;
  uint64_t next_ = 1;
  absl::flat_hash_map<uint64_t, Group> groups_;
  std::deque<uint64_t> ready_;
};

}  // namespace cistern
