#include "cache_node/lease_table.h"

#include "core/check.h"

namespace cistern {

namespace {
constexpr uint32_t kNone = UINT32_MAX;
}

bool LeaseTable::HasRoom(PeerId peer) const {
  if (plans_ + holds_ >= kShardPlansMax) return false;
  const auto it = peers_.find(peer);
  return it == peers_.end() || it->second.count < kPlansPerPeerMax;
}

std::optional<uint32_t> LeaseTable::Add(Kind kind, PeerId peer, uint64_t plan_id,
                                        absl::Span<const SlotId> slots, Nanos end) {
  if (!HasRoom(peer)) return std::nullopt;
  uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<uint32_t>(rows_.size());
    rows_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
    retained_ -= rows_[index].slots.capacity();
  }
  Row& row = rows_[index];
  row.kind = kind;
  row.live = true;
  row.peer = peer;
  row.plan_id = plan_id;
  row.end = end;
  row.nonce = next_nonce_++;
  row.slots.assign(slots.begin(), slots.end());
  PeerRows& mine = peers_[peer];
  row.previous = kNone;
  row.next = mine.head;
  if (mine.head != kNone) rows_[mine.head].previous = index;
  mine.head = index;
  ++mine.count;
  ends_.Add(index, end);
  ++(kind == Kind::kPlan ? plans_ : holds_);
  return index;
}

std::optional<uint32_t> LeaseTable::AddPlan(PeerId peer, uint64_t plan_id, absl::Span<const SlotId> slots,
                                            Nanos end) {
  if (by_plan_.contains({peer, plan_id})) return std::nullopt;
  const auto index = Add(Kind::kPlan, peer, plan_id, slots, end);
  if (index.has_value()) by_plan_.emplace(std::make_pair(peer, plan_id), *index);
  return index;
}

uint64_t LeaseTable::AddHold(PeerId peer, absl::Span<const SlotId> slots, Nanos end) {
  const auto index = Add(Kind::kHold, peer, 0, slots, end);
  return index.has_value() ? uint64_t{rows_[*index].nonce} << 32 | (*index + 1) : 0;
}

std::optional<uint32_t> LeaseTable::FindPlan(PeerId peer, uint64_t plan_id, Nanos now) const {
  const auto it = by_plan_.find({peer, plan_id});
  if (it == by_plan_.end() || rows_[it->second].end <= now) return std::nullopt;
  return it->second;
}

void LeaseTable::Renew(uint32_t index, Nanos end) {
  Row& row = rows_[index];
  CISTERN_CHECK(row.live);
  if (end <= row.end) return;
  row.end = end;
  ends_.Move(index, end);
}

std::optional<uint32_t> LeaseTable::FindHold(uint64_t cookie) const {
  const uint64_t place = cookie & 0xffffffff;
  if (place == 0 || place > rows_.size()) return std::nullopt;
  const Row& row = rows_[place - 1];
  if (!row.live || row.kind != Kind::kHold || row.nonce != cookie >> 32) return std::nullopt;
  return static_cast<uint32_t>(place - 1);
}

void LeaseTable::Remove(uint32_t index, std::vector<SlotId>& slots) {
  Row& row = rows_[index];
  CISTERN_CHECK(row.live);
  slots.assign(row.slots.begin(), row.slots.end());
  ends_.Remove(index);
  const auto mine = peers_.find(row.peer);
  (row.previous == kNone ? mine->second.head : rows_[row.previous].next) = row.next;
  if (row.next != kNone) rows_[row.next].previous = row.previous;
  if (--mine->second.count == 0) peers_.erase(mine);
  if (row.kind == Kind::kPlan) {
    by_plan_.erase({row.peer, row.plan_id});
    --plans_;
  } else {
    --holds_;
  }
  row.live = false;
  row.slots.clear();
  if (retained_ + row.slots.capacity() > kSlotsRetainedMax) row.slots.shrink_to_fit();
  retained_ += row.slots.capacity();
  free_.push_back(index);
}

std::optional<uint32_t> LeaseTable::Due(Nanos now) const {
  if (ends_.next() > now) return std::nullopt;
  return ends_.next_id();
}

std::optional<uint32_t> LeaseTable::AnyOf(PeerId peer) const {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return std::nullopt;
  return it->second.head;
}

}  // namespace cistern
