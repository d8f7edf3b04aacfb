#include "cache_node/put_table.h"

#include "core/check.h"

namespace cistern {

namespace {
constexpr uint32_t kNone = UINT32_MAX;
}

bool PutTable::HasRoom(PeerId peer) const {
  if (size_ >= kPutsMax) return false;
  const auto it = peers_.find(peer);
  return it == peers_.end() || it->second.count < kPutsPerPeerMax;
}

uint64_t PutTable::Add(const Row& row) {
  CISTERN_CHECK(HasRoom(row.peer));
  uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<uint32_t>(rows_.size());
    rows_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  rows_[index] = row;
  Row& mine = rows_[index];
  mine.put_id = random_.Next() << kIndexBits | (index + 1);
  PeerRows& peer = peers_[row.peer];
  mine.previous = kNone;
  mine.next = peer.head;
  if (peer.head != kNone) rows_[peer.head].previous = index;
  peer.head = index;
  ++peer.count;
  deadlines_.Add(index, row.deadline);
  ++size_;
  return mine.put_id;
}

std::optional<uint32_t> PutTable::Find(PeerId peer, uint64_t put_id) const {
  const uint64_t place = put_id & ((uint64_t{1} << kIndexBits) - 1);
  if (place == 0 || place > rows_.size()) return std::nullopt;
  const Row& row = rows_[place - 1];
  if (row.put_id != put_id || row.peer != peer) return std::nullopt;
  return static_cast<uint32_t>(place - 1);
}

void PutTable::Remove(uint32_t index) {
  Row& row = rows_[index];
  CISTERN_CHECK(row.put_id != 0);
  deadlines_.Remove(index);
  const auto peer = peers_.find(row.peer);
  (row.previous == kNone ? peer->second.head : rows_[row.previous].next) = row.next;
  if (row.next != kNone) rows_[row.next].previous = row.previous;
  if (--peer->second.count == 0) peers_.erase(peer);
  row.put_id = 0;
  free_.push_back(index);
  --size_;
}

std::optional<uint32_t> PutTable::Due(Nanos now) const {
  if (deadlines_.next() > now) return std::nullopt;
  return deadlines_.next_id();
}

void PutTable::Move(uint32_t index, Nanos deadline) {
  rows_[index].deadline = deadline;
  deadlines_.Move(index, deadline);
}

std::optional<uint32_t> PutTable::AnyOf(PeerId peer) const {
  const auto it = peers_.find(peer);
  if (it == peers_.end()) return std::nullopt;
  return it->second.head;
}

}  // namespace cistern
