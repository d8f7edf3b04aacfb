// Parts that plans wait for, from the log into RAM.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "core/check.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

uint32_t BeginOf(const DiskEntry& place) { return uint32_t{place.page} * kPageBytes; }
uint32_t EndOf(const DiskEntry& place) { return RoundUpTo(place.data_at + place.length, kPageBytes); }
bool SamePlace(const DiskEntry& a, const DiskEntry& b) {
  return a.extent == b.extent && a.data_at == b.data_at;
}

}  // namespace

uint64_t DiskTier::OpenGroup() {
  if (groups_.size() >= kStageGroupsMax) return 0;
  groups_[next_group_];
  return next_group_++;
}

void DiskTier::Want(uint64_t group, const BlockKey& block, PartCoord coord, const LayoutId& layout,
                    uint32_t part_bytes) {
  const DiskEntry* place = log_->Find(block.hash, coord);
  if (place == nullptr || wants_.size() >= kStageWantsMax) return;
  const WantKey key{block.hash, coord.Packed()};
  WantedPart& want = wants_[key];
  Group& asker = groups_[group];
  if (want.groups.empty()) {
    want.block = block;
    want.layout = layout;
    want.part_bytes = part_bytes;
    want.place = *place;
    asker.fresh.push_back(key);
  } else if (want.groups.back() == group) {
    return;  // Asked for twice in one plan.
  }
  want.groups.push_back(group);
  ++asker.open;
}

void DiskTier::CloseGroup(uint64_t group) {
  Group& closed = groups_[group];
  closed.closed = true;
  QueueReads(std::move(closed.fresh));
  if (closed.open == 0) ready_.push_back(group);
  PumpReads();
}

// Neighbours on disk become one read. Parts are asked for in the order in which their records lie.
void DiskTier::QueueReads(std::vector<WantKey> wants) {
  std::sort(wants.begin(), wants.end(), [this](const WantKey& a, const WantKey& b) {
    const DiskEntry& x = wants_.find(a)->second.place;
    const DiskEntry& y = wants_.find(b)->second.place;
    return x.extent != y.extent ? x.extent < y.extent : x.data_at < y.data_at;
  });
  ReadOp* last = nullptr;
  for (const WantKey& key : wants) {
    const DiskEntry& place = wants_.find(key)->second.place;
    const bool joins = last != nullptr && last->extent == place.extent && BeginOf(place) <= last->end &&
                       (EndOf(place) - last->begin <= kStageReadBytes || EndOf(place) <= last->end ||
                        BeginOf(place) == last->begin);
    if (!joins) {
      reads_.push_back({.extent = place.extent, .begin = BeginOf(place), .end = EndOf(place), .parts = {}});
      last = &reads_.back();
    }
    last->end = std::max(last->end, EndOf(place));
    last->parts.push_back(key);
  }
}

// What a planned read is still good for. Parts that are in memory yet, not durable, come from there; reclaim
// may have moved parts, which are read elsewhere, or dropped them.
bool DiskTier::StillThere(ReadOp& op) {
  std::vector<WantKey> here, moved;
  for (const WantKey& key : op.parts) {
    WantedPart& want = wants_.find(key)->second;
    const DiskEntry* now = log_->Find(key.hash, PartCoord::Unpack(key.coord));
    if (now == nullptr) {
      EndWant(key, kNoSlot);
      continue;
    }
    const bool same = SamePlace(*now, want.place);
    want.place = *now;
    if (const std::byte* bytes = log_->Peek(now->extent, BeginOf(*now), EndOf(*now) - BeginOf(*now))) {
      SlotId slot = kNoSlot;
      Land(key, want, bytes, slot);
      EndWant(key, slot);
    } else {
      (same ? here : moved).push_back(key);
    }
  }
  op.parts = std::move(here);
  if (!moved.empty()) QueueReads(std::move(moved));
  return !op.parts.empty();
}

void DiskTier::PumpReads() {
  while (!reads_.empty() && !buffers_.empty()) {
    ReadOp op = std::move(reads_.front());
    reads_.pop_front();
    if (!StillThere(op)) continue;
    std::byte* buffer = buffers_.back();
    buffers_.pop_back();
    ++counters_.stage_reads;
    const uint32_t bytes = op.end - op.begin;
    const uint32_t extent = op.extent, begin = op.begin;
    log_->Read(extent, begin, buffer, bytes, [this, buffer, op = std::move(op)](int error) {
      Landed(op, buffer, error);
      buffers_.push_back(buffer);
    });
  }
}

void DiskTier::Landed(const ReadOp& op, const std::byte* bytes, int error) {
  for (const WantKey& key : op.parts) {
    WantedPart& want = wants_.find(key)->second;
    SlotId slot = kNoSlot;
    if (error != 0) {
      log_->Forget(key.hash, PartCoord::Unpack(key.coord), want.place, DiskLog::Why::kReadError);
    } else {
      Land(key, want, bytes + (BeginOf(want.place) - op.begin), slot);
    }
    EndWant(key, slot);
  }
}

// One part out of its record into RAM; kOk with the slot that has it. Nothing is believed that the record
// does not say itself (F06, F37).
PartResult DiskTier::Land(const WantKey& key, WantedPart& want, const std::byte* record, SlotId& slot) {
  const PartCoord coord = PartCoord::Unpack(key.coord);
  slot = ram_->Find(want.block.hash, coord);
  if (slot != kNoSlot) return PartResult::kOk;                           // A writer was faster.
  if (log_->Find(key.hash, coord) == nullptr) return PartResult::kMiss;  // Dropped meanwhile (F04).
  const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(record);
  const uint32_t at = want.place.data_at - BeginOf(want.place) - kPageBytes;
  const RecordHeader::Part* part = nullptr;
  if (header.ok() && header->extent == want.place.extent && header->page == want.place.page &&
      header->use == log_->UseOf(want.place.extent) && header->block == want.block &&
      header->layout == want.layout) {
    for (const RecordHeader::Part& one : header->parts) {
      if (one.coord == coord && one.at == at && one.length == want.part_bytes) part = &one;
    }
  }
  if (part == nullptr) {
    log_->Forget(key.hash, coord, want.place, DiskLog::Why::kHeader);
    return PartResult::kCorrupt;
  }
  const uint32_t tick = RamTier::TickOf(clock_.Now());
  HolderId holder = 0;
  if (!HolderFor(key.hash, header->retention, holder)) return PartResult::kMiss;  // Its time has ended.
  if (const PartResult reserved = ram_->Reserve(part->length, tick, slot, holder);
      reserved != PartResult::kOk) {
    slot = kNoSlot;
    return reserved;
  }
  if (CopyCrc32c(ram_->data(slot), record + kPageBytes + at, part->length) != part->crc) {
    ram_->Abandon(slot);
    slot = kNoSlot;
    log_->Forget(key.hash, coord, want.place, DiskLog::Why::kPayload);
    return PartResult::kCorrupt;
  }
  const PartResult published = ram_->Publish(slot, {.block = want.block, .coord = coord}, want.layout,
                                             part->length, part->crc, header->depth, tick, 0, header->tail);
  if (published != PartResult::kOk) {
    slot = kNoSlot;
    return published;
  }
  if (holder != 0) SetEnd(slot, tick);
  ++counters_.staged_parts;
  counters_.staged_bytes += part->length;
  log_->Used(key.hash, coord);
  return PartResult::kOk;
}

void DiskTier::EndWant(const WantKey& key, SlotId slot) {
  const auto it = wants_.find(key);
  const std::vector<uint64_t> groups = std::move(it->second.groups);
  wants_.erase(it);
  if (slot == kNoSlot) ++counters_.stage_failed_parts;
  for (const uint64_t id : groups) {
    Group& group = groups_[id];
    if (slot != kNoSlot && ram_->TryLease(slot)) group.held.push_back(slot);
    if (--group.open == 0 && group.closed) ready_.push_back(id);
  }
}

bool DiskTier::TakeReady(uint64_t& group, std::vector<SlotId>& held) {
  if (ready_.empty()) return false;
  group = ready_.front();
  ready_.pop_front();
  const auto it = groups_.find(group);
  held = std::move(it->second.held);
  groups_.erase(it);
  return true;
}

}  // namespace cistern
