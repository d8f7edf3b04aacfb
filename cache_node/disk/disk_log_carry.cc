// What a leaving extent has that is still wanted goes to the log's end once more.
#include <algorithm>
#include <utility>

#include "cache_node/disk/crash_point.h"
#include "cache_node/disk/disk_log.h"

namespace cistern {
namespace {

constexpr uint32_t kCopyReadMax = kRecordBytesMax;  // One read of a leaving extent.
constexpr uint32_t kCopyGapMax = 256u
                                 << 10;  // Unwanted bytes between two wanted records that are read along.

}  // namespace

void DiskLog::StartPlanning(std::vector<FooterEntry> entries, uint32_t count) {
  job_ = Job::kPlanning;
  plan_entries_ = std::move(entries);
  plan_at_ = 0;
  plan_count_ = count;
  plan_drops_ = table_.HasOlder(UseOf(job_file_).life);
  plan_bytes_ = 0;
}

// Looks at kEntriesPerTurn more entries of the leaving extent.
void DiskLog::PlanOn() {
  const uint32_t count = std::min(kEntriesPerTurn, plan_count_ - plan_at_);
  if (plan_footer_.has_value()) {
    plan_entries_.clear();
    const std::byte* from = aux_ + uint64_t{plan_at_} * kFooterEntryBytes;
    if (!DecodeSomeEntries(*plan_footer_, from, count, plan_entries_).ok()) return FooterIsDamaged();
  }
  const size_t first = plan_footer_.has_value() ? 0 : plan_at_;
  for (size_t i = first; i < first + count; ++i) PlanCopy(plan_entries_[i]);
  taken_in_turn_ = count;
  plan_at_ += count;
  if (plan_at_ < plan_count_) return;
  plan_entries_ = {};
  job_ = Job::kCopying;
  CrashHere(CrashPoint::kReclaimBegun);
}

// Parts that were read since they were written, up to kCopyBytesMax of them, go to the log's end once more;
// of a nearly empty extent all do.
void DiskLog::PlanCopy(const FooterEntry& place) {
  if (place.kind == RecordKind::kBlock) {
    const DiskEntry* entry = index_.Find(place.block.hash, place.coord);
    if (!IsAt(entry, job_file_, place)) return;
    const bool pinned = PinOf(entry->retention) != PinKind::kNone;
    if ((entry->uses == 0 && !copy_all_ && !pinned) ||
        plan_bytes_ + place.length > kCopyBytesMax - kRecordBytesMax) {
      ++counters_.evicted_parts;
      counters_.pins_evicted_parts += pinned;
      return EraseEntry(place.block.hash, place.coord, *entry);
    }
    plan_bytes_ += place.length + kPageBytes;
  } else if (!plan_drops_) {
    return;
  }
  const uint32_t end =
      RoundUpTo(std::max(place.data_at + place.length, (place.page + 1) * kPageBytes), kPageBytes);
  if (copies_.empty() || copies_.back().page != place.page)
    copies_.push_back({.page = place.page, .end = end, .parts = {}});
  copies_.back().end = std::max(copies_.back().end, end);
  copies_.back().parts.push_back(place);
}

void DiskLog::CopyOn() {
  if (copy_reading_) return;
  if (!writer_->has_head()) table_.Recount();
  const bool stuck = !writer_->has_head() && table_.free_count() == 0 && creating_ == 0;
  if (stuck && !carried_.has_value()) {
    // A failed write took the open extent, and no other is left: these parts cannot be kept.
    for (const Copy& copy : copies_) {
      for (const FooterEntry& place : copy.parts) {
        if (place.kind != RecordKind::kBlock) LoseDropsOf(place);
        const DiskEntry* entry = index_.Find(place.block.hash, place.coord);
        if (place.kind != RecordKind::kBlock || !IsAt(entry, job_file_, place)) continue;
        ++counters_.evicted_parts;
        EraseEntry(place.block.hash, place.coord, *entry);
      }
    }
    copies_.clear();
    reclaims_turn_ = false;
  }
  if (copies_.empty()) {
    if (gone_before_ != 0 && !stuck) return;  // That is told first.
    leave_after_ = writer_->appended();
    job_ = Job::kLeaving;
    return;
  }
  if (copy_loaded_) {
    uint64_t budget = kReclaimBytesPerTurn;
    CopyRecords(budget);
    carried_in_turn_ = kReclaimBytesPerTurn - budget;
    copy_loaded_ = !copies_.empty() && copies_.front().end <= copy_end_;
    return;
  }
  copy_begin_ = copies_.front().page * kPageBytes;
  copy_end_ = copy_begin_;
  for (const Copy& copy : copies_) {
    if (copy.page * kPageBytes > copy_end_ + kCopyGapMax || copy.end - copy_begin_ > kCopyReadMax) break;
    copy_end_ = copy.end;
  }
  copy_reading_ = true;
  Read(job_file_, copy_begin_, aux_, copy_end_ - copy_begin_, [this](int error) {
    copy_reading_ = false;
    copy_loaded_ = true;
    if (error != 0)
      std::fill_n(aux_, copy_end_ - copy_begin_, std::byte{0});  // No record decodes: all are misses.
  });
}

// Copies up to `budget` bytes of the records that lie in aux_, one after the other.
void DiskLog::CopyRecords(uint64_t& budget) {
  while (budget > 0 && !copies_.empty() && copies_.front().end <= copy_end_) {
    if (!carried_.has_value()) {
      if (!BeginCarrying()) return;
      budget -= std::min<uint64_t>(budget, kPageBytes);
    }
    if (carried_.has_value() && !CarryOn(budget)) return;
  }
}

// Begins to append what is still wanted of the first record, or steps over it. False: no room now, or it is
// another's turn.
bool DiskLog::BeginCarrying() {
  if (writer_->is_copying()) {
    reclaims_turn_ = true;
    return false;
  }
  if (std::exchange(callers_turn_, false)) return false;
  reclaims_turn_ = false;
  const Copy& copy = copies_.front();
  const std::byte* page = aux_ + (copy.page * kPageBytes - copy_begin_);
  absl::StatusOr<RecordHeader> header = DecodeRecordHeader(page);
  const bool good = header.ok() && header->use == UseOf(job_file_) && header->page == copy.page;
  RecordHeader wanted;
  std::vector<const std::byte*> data;
  for (const FooterEntry& place : copy.parts) {
    const bool block = place.kind == RecordKind::kBlock;
    const DiskEntry* entry = block ? index_.Find(place.block.hash, place.coord) : nullptr;
    if (block && !IsAt(entry, job_file_, place)) continue;
    if (!good) {
      ++counters_.corrupt_headers;
      SayDamage(job_file_, copy.page * kPageBytes, "header of a record that was to be kept");
      block ? EraseEntry(place.block.hash, place.coord, *entry) : LoseDropsOf(place);
      continue;
    }
    const uint32_t at = RoundUpTo(wanted.PayloadBytes(), kPartAlign);
    if (place.length > 0) {
      wanted.parts.push_back({.coord = place.coord, .at = at, .length = place.length, .crc = place.crc});
      data.push_back(page + (place.data_at - copy.page * kPageBytes));
    }
    wanted.kind = place.kind;
  }
  if (!good || (wanted.parts.empty() && wanted.kind != RecordKind::kDropAll)) {
    copies_.pop_front();
    return true;
  }
  wanted.block = header->block;
  if (wanted.kind != RecordKind::kBlock)  // What was stored since stays.
    wanted.block.fingerprint = WhatItDrops(copy.parts.front(), header->use);
  wanted.layout = header->layout;
  wanted.depth = header->depth;
  wanted.tail = header->tail;
  wanted.retention = header->retention;
  carried_ = std::move(wanted);
  if (writer_->Begin(*carried_, data)) return true;
  carried_.reset();
  return false;
}

// False: there is more of it, or it was lost with a write that failed and begins anew.
bool DiskLog::CarryOn(uint64_t& budget) {
  switch (writer_->Step(budget)) {
    case ExtentWriter::Copied::kMore:
      return false;
    case ExtentWriter::Copied::kLost:
      carried_.reset();
      return false;
    case ExtentWriter::Copied::kDamaged:
      // What is damaged is a miss from here on; the others of its record go next.
      for (const uint32_t i : writer_->damaged()) {
        std::vector<FooterEntry>& parts = copies_.front().parts;
        const auto place = std::find_if(parts.begin(), parts.end(), [&](const FooterEntry& one) {
          return one.coord == carried_->parts[i].coord;
        });
        ++counters_.corrupt_payloads;
        SayDamage(job_file_, place->page * kPageBytes, "payload of a record that was to be kept");
        const DiskEntry* entry = index_.Find(place->block.hash, place->coord);
        if (place->kind != RecordKind::kBlock) {
          LoseDropsOf(*place);
        } else if (IsAt(entry, job_file_, *place)) {
          EraseEntry(place->block.hash, place->coord, *entry);
        }
        parts.erase(place);
      }
      carried_.reset();
      return true;
    case ExtentWriter::Copied::kDone:
      Carried();
      carried_.reset();
      copies_.pop_front();
      return true;
  }
  return false;
}

// All of a record has its new place; what was dropped meanwhile has none, and its drop follows the record.
void DiskLog::Carried() {
  const RecordHeader& header = *carried_;
  for (const FooterEntry& place : copies_.front().parts) {
    const auto part = std::find_if(header.parts.begin(), header.parts.end(),
                                   [&](const RecordHeader::Part& one) { return one.coord == place.coord; });
    if (part == header.parts.end()) continue;
    counters_.copied_bytes += part->length;
    const DiskEntry* old = index_.Find(place.block.hash, place.coord);
    if (header.kind != RecordKind::kBlock || !IsAt(old, job_file_, place)) continue;
    DiskEntry entry = *old;
    entry.SetPlace(header.extent, header.page, (header.page + 1) * kPageBytes + part->at);
    entry.uses = 0;
    SetEntry(header.block.hash, part->coord, entry, header.tail);
  }
}

}  // namespace cistern
