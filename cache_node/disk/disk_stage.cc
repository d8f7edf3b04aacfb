// Parts that plans wait for, from the log into RAM.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_tier.h"
#include "core/check.h"
#include "core/crc32c.h"

namespace cistern {

void DiskTier::Want(uint64_t group, const BlockKey& block, PartCoord coord, const LayoutId& layout,
                    uint32_t part_bytes, TenantIndex tenant) {
  const DiskEntry* place = log_->Find(block.hash, coord);
  const WantKey key{block.hash, coord.Packed()};
  if (place == nullptr || (wants_.size() >= options_.stage_wants_max && !wants_.contains(key))) {
    ++counters_.stage_failed_parts;
    return;
  }
  WantedPart& want = wants_[key];
  if (want.groups.empty()) {
    want.block = block;
    want.layout = layout;
    want.part_bytes = part_bytes;
    want.tenant = tenant;
    want.place = *place;
    fresh_[group].push_back(key);
  } else if (want.groups.back() == group) {
    return;  // Asked for twice in one plan.
  }
  want.groups.push_back(group);
  groups_.Add(group);
}

void DiskTier::CloseGroup(uint64_t group) {
  if (const auto fresh = fresh_.find(group); fresh != fresh_.end()) {
    std::vector<WantKey> wants = std::move(fresh->second);
    fresh_.erase(fresh);
    QueueReads(std::move(wants));
  }
  groups_.Close(group);
  PumpReads();
}

// Neighbours on disk become one read. Parts are asked for in the order in which their records lie.
void DiskTier::QueueReads(std::vector<WantKey> wants) {
  std::sort(wants.begin(), wants.end(), [this](const WantKey& a, const WantKey& b) {
    const DiskEntry& x = wants_.find(a)->second.place;
    const DiskEntry& y = wants_.find(b)->second.place;
    return x.extent != y.extent ? x.extent < y.extent : x.data_at() < y.data_at();
  });
  ReadOp* last = nullptr;
  for (const WantKey& key : wants) {
    const DiskEntry& place = wants_.find(key)->second.place;
    const bool joins = last != nullptr && last->extent == place.extent && place.record_at() <= last->end &&
                       (place.end() - last->begin <= kStageReadBytes || place.end() <= last->end ||
                        place.record_at() == last->begin);
    if (!joins) {
      reads_.push_back({.extent = place.extent, .begin = place.record_at(), .end = place.end(), .parts = {}});
      last = &reads_.back();
    }
    last->end = std::max(last->end, place.end());
    last->parts.push_back(key);
  }
}

// What a planned read is still good for. Parts that are in memory yet, not durable, come from there; reclaim
// may have moved parts, which are read elsewhere, or dropped them.
bool DiskTier::StillThere(ReadOp& op) {
  std::vector<WantKey> here, moved, in_memory;
  for (const WantKey& key : op.parts) {
    WantedPart& want = wants_.find(key)->second;
    const DiskEntry* now = log_->Find(key.hash, PartCoord::Unpack(key.coord));
    if (now == nullptr) {
      EndWant(key, kNoSlot);
      continue;
    }
    const bool same = now->IsAt(want.place);
    want.place = *now;
    if (log_->Peek(now->extent, now->record_at(), now->end() - now->record_at()) != nullptr) {
      in_memory.push_back(key);
    } else {
      (same ? here : moved).push_back(key);
    }
  }
  op.parts = std::move(here);
  if (!in_memory.empty()) landings_.push_back({.op = {.parts = std::move(in_memory)}});
  if (!moved.empty()) QueueReads(std::move(moved));
  return !op.parts.empty();
}

void DiskTier::PumpReads() {
  while (!reads_.empty()) {
    // The oldest waits until there is a place for it: nothing shorter goes before.
    std::byte* buffer = read_memory_->Take(reads_.front().bytes());
    if (buffer == nullptr) break;
    ReadOp op = std::move(reads_.front());
    reads_.pop_front();
    const uint32_t extent = op.extent, begin = op.begin, bytes = op.bytes();
    if (!StillThere(op)) {
      read_memory_->Give(buffer, bytes);
      continue;
    }
    ++counters_.stage_reads;
    log_->Read(extent, begin, buffer, bytes, [this, buffer, op = std::move(op)](int error) mutable {
      Landed(std::move(op), buffer, error);
    });
  }
}

void DiskTier::Landed(ReadOp op, std::byte* buffer, int error) {
  if (error == 0) return landings_.push_back({.op = std::move(op), .buffer = buffer});
  for (const WantKey& key : op.parts) {
    log_->Forget(key.hash, PartCoord::Unpack(key.coord), wants_.find(key)->second.place,
                 DiskLog::Why::kReadError);
    EndWant(key, kNoSlot);
  }
  read_memory_->Give(buffer, op.bytes());
}

// Copies up to so many bytes of what has landed into RAM, in turns, so that hits do not wait for it; a part
// may take several. A record's header page counts like a part's bytes.
uint64_t DiskTier::LandOn(uint64_t bytes_max) {
  uint64_t left = bytes_max;
  while (!landings_.empty() && left > 0) {
    Landing& landing = landings_.front();
    if (landing.next == landing.op.parts.size()) {
      if (landing.buffer != nullptr) read_memory_->Give(landing.buffer, landing.op.bytes());
      landings_.pop_front();
      PumpReads();
      continue;
    }
    const WantKey key = landing.op.parts[landing.next];
    const std::byte* record = RecordAt(landing, key);
    if (record == nullptr) {
      GiveUpArriving();
      ++landing.next;
      continue;
    }
    if (!arriving_.has_value()) {
      left -= std::min<uint64_t>(left, kPageBytes);
      SlotId slot = kNoSlot;
      if (!Arrive(key, record, slot)) {
        ++landing.next;
        EndWant(key, slot);
      }
      continue;
    }
    Arriving& part = *arriving_;
    const auto now = static_cast<uint32_t>(std::min<uint64_t>(part.length - part.copied, left));
    part.copied_crc =
        CopyCrc32c(ram_->data(part.slot) + part.copied, record + part.at + part.copied, now, part.copied_crc);
    part.copied += now;
    left -= now;
    if (part.copied < part.length) break;
    ++landing.next;
    EndWant(key, Arrived(key));
  }
  return bytes_max - left;
}

// Where the record of a part lies; null: nowhere any more, and its want has ended, or is read from the disk.
const std::byte* DiskTier::RecordAt(const Landing& landing, const WantKey& key) {
  WantedPart& want = wants_.find(key)->second;
  if (landing.buffer != nullptr) return landing.buffer + (want.place.record_at() - landing.op.begin);
  // The log's memory is good for one turn only.
  const DiskEntry* now = log_->Find(key.hash, PartCoord::Unpack(key.coord));
  if (now == nullptr) {
    EndWant(key, kNoSlot);
    return nullptr;
  }
  const std::byte* bytes = now->IsAt(want.place)
                               ? log_->Peek(now->extent, now->record_at(), now->end() - now->record_at())
                               : nullptr;
  if (bytes != nullptr) return bytes;
  want.place = *now;
  QueueReads({key});
  return nullptr;
}

// Begins to take one part out of its record. False: it has ended, and `slot` is the one in RAM that has it,
// if any. Nothing is believed that the record does not say itself (F06, F37).
bool DiskTier::Arrive(const WantKey& key, const std::byte* record, SlotId& slot) {
  const WantedPart& want = wants_.find(key)->second;
  const PartCoord coord = PartCoord::Unpack(key.coord);
  slot = ram_->Find(key.hash, coord);
  if (slot != kNoSlot) return false;                         // A writer was faster.
  if (log_->Find(key.hash, coord) == nullptr) return false;  // Dropped meanwhile (F04).
  const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(record);
  const uint32_t at = want.place.at * kPartAlign;
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
    return false;
  }
  HolderId holder = 0;
  if (!HolderFor(key.hash, header->retention, want.tenant, holder)) return false;  // Its time has ended.
  SlotId reserved = kNoSlot;
  if (ram_->Reserve(part->length, RamTier::TickOf(clock_.Now()), reserved, holder, ComesFrom::kOtherTier) !=
      PartResult::kOk)
    return false;
  arriving_ = Arriving{.slot = reserved,
                       .holder = holder,
                       .at = kPageBytes + at,
                       .length = part->length,
                       .crc = part->crc,
                       .depth = header->depth,
                       .tail = header->tail};
  return true;
}

// All bytes of it are copied: the slot in RAM that has the part now, if any.
SlotId DiskTier::Arrived(const WantKey& key) {
  const Arriving part = *std::exchange(arriving_, std::nullopt);
  const WantedPart& want = wants_.find(key)->second;
  const PartCoord coord = PartCoord::Unpack(key.coord);
  if (part.copied_crc != part.crc) {
    ram_->Abandon(part.slot);
    log_->Forget(key.hash, coord, want.place, DiskLog::Why::kPayload);
    return kNoSlot;
  }
  if (log_->Find(key.hash, coord) == nullptr) return ram_->Abandon(part.slot), kNoSlot;  // Dropped (F04).
  const uint32_t tick = RamTier::TickOf(clock_.Now());
  const PartResult published = ram_->Publish(part.slot, {.block = want.block, .coord = coord}, want.layout,
                                             part.length, part.crc, part.depth, tick, 0, part.tail);
  // It has freed the slot. A writer may have been faster.
  if (published != PartResult::kOk)
    return published == PartResult::kExists ? ram_->Find(key.hash, coord) : kNoSlot;
  if (part.holder != 0) SetEnd(part.slot, tick);
  ++counters_.staged_parts;
  counters_.staged_bytes += part.length;
  log_->Used(key.hash, coord);
  return part.slot;
}

void DiskTier::GiveUpArriving() {
  if (arriving_.has_value()) ram_->Abandon(arriving_->slot);
  arriving_.reset();
}

void DiskTier::EndWant(const WantKey& key, SlotId slot) {
  const auto it = wants_.find(key);
  const std::vector<uint64_t> groups = std::move(it->second.groups);
  wants_.erase(it);
  if (slot == kNoSlot) ++counters_.stage_failed_parts;
  for (const uint64_t id : groups) groups_.End(id, slot != kNoSlot && ram_->TryLease(slot) ? slot : kNoSlot);
}

}  // namespace cistern
