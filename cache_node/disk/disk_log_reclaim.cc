// What the log does beside serving: files made ahead, recovered extents sealed, extents emptied and freed.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/crash_point.h"
#include "cache_node/disk/disk_log.h"
#include "core/check.h"

namespace cistern {
namespace {

constexpr uint32_t kCopyReadMax = kRecordBytesMax;  // One read of a leaving extent.
constexpr uint32_t kCopyGapMax = 256u
                                 << 10;  // Unwanted bytes between two wanted records that are read along.
constexpr uint32_t kSpareFrom = 16;      // Extents from which on reclaim keeps more than one free.

}  // namespace

void DiskLog::MaintainStep() {
  if (stopping_) return;
  if (job_ == Job::kErasing) return EraseOn();
  if (job_ == Job::kCopying) return CopyOn();
  // It looks at all extents: not in every turn.
  const Nanos now = clock_.Now();
  if (now < maintain_at_) return;
  maintain_at_ = now + kMaintainEvery;
  SayDamageLeftOut(now);
  table_.Recount();
  CreateExtents();
  if (job_ == Job::kLeaving) {
    if (writer_->ended() >= leave_after_ && table_.Find(job_file_)->readers == 0) StartFree();
    return;
  }
  if (job_ == Job::kRemoving && manifest_.HasSettled(remove_after_)) return RemoveFreed();
  if (job_ != Job::kNone || degraded_) return;
  if (!seal_queue_.empty()) {
    const FileId file = seal_queue_.back();
    seal_queue_.pop_back();
    return StartSeal(file);
  }
  if (!repair_queue_.empty()) {
    const FileId file = repair_queue_.back();
    repair_queue_.pop_back();
    return StartRepair(file);
  }
  const bool full = table_.count() >= table_.capacity() || clock_.Now() < create_blocked_until_;
  const uint32_t spare = table_.capacity() < kSpareFrom ? 1 : kReadyExtents;
  // What reclaim copies needs a place; and what is wanted is known when all is scanned.
  if (recovering() || (creating_ > 0 && table_.free_count() == 0)) return;
  const bool must = (full && table_.free_count() < spare) || table_.IsOverFull();
  const bool can_copy = writer_->has_head() || table_.free_count() > 0;
  if (const std::optional<FileId> victim = table_.Victim(must, can_copy)) StartReclaim(*victim);
}

void DiskLog::CreateExtents() {
  if (degraded_ || creating_ > 0 || table_.free_count() >= kReadyExtents ||
      clock_.Now() < create_blocked_until_)
    return;
  // A start on a full log has no extent to copy into: one more than there is, and one goes again
  // (IsOverFull). Not while one is about to be free.
  const bool spare = !writer_->has_head() && table_.free_count() == 0 && !recovering() &&
                     repair_queue_.empty() && job_ != Job::kWriting;
  const std::optional<FileId> file = table_.NewFile(spare);
  if (!file.has_value()) return;
  ++creating_;
  Extent& extent = table_.Add(*file);
  extent.state = ExtentState::kLeaving;  // Nobody's until it is there.
  extent.scanned = true;
  queue_.Submit({.kind = DiskRequest::Kind::kCreate, .file = *file, .bytes = kExtentBytes},
                [this, created = *file](int error) {
                  --creating_;
                  if (error == 0) {
                    table_.Find(created)->state = ExtentState::kFree;
                    return;
                  }
                  table_.Remove(created);
                  create_blocked_until_ = clock_.Now() + kDegradedRetryMin * 4;
                  if (error == ENOSPC && table_.count() >= kExtentsMin) {
                    // Goes on with what there is: reclaim makes room inside of it.
                    if (counters_.no_space_errors++ == 0) {
                      Say(true, absl::StrCat("nvme: the file system is full; the log stays at ",
                                             table_.count(), " of ", table_.capacity(), " extents for now"));
                    }
                    return;
                  }
                  Degrade(error, "making an extent");
                });
}

void DiskLog::FinishJob() { job_ = Job::kNone; }

// The footer of an extent that a crash, or damage, left without one; what it does not name is cut off. One
// that is there is synced: records, too, may be in a cache alone, and what they are copies of is emptied
// next.
void DiskLog::StartSeal(FileId file) {
  Extent& extent = *table_.Find(file);
  if (extent.state != ExtentState::kSealed) return;
  job_ = Job::kWriting;
  const auto sealed = [this, file](int error) {
    FinishJob();
    if (error != 0) return Degrade(error, "footer of a recovered extent");
    Extent& done = *table_.Find(file);
    counters_.repaired_extents += !done.footer;
    done.footer = true;
    done.kept = {};
    CrashHere(CrashPoint::kRecoverySealed);
    Record(file, done);
  };
  if (extent.footer) return queue_.Submit({.kind = DiskRequest::Kind::kSync, .file = file}, sealed);
  const uint32_t bytes = FooterBytes(extent.entries);
  EncodeFooter({.extent = file, .use = extent.use, .records = extent.records, .data_end = extent.data_end},
               extent.kept, aux_);
  WriteAndSync(file, kExtentBytes - bytes, aux_, bytes, sealed);
}

void DiskLog::StartRepair(FileId file) {
  job_ = Job::kWriting;
  const bool free = table_.Find(file)->state == ExtentState::kLeaving;
  const auto written = [this, file, free](int error) {
    FinishJob();
    if (error != 0) {
      if (free) repair_queue_.push_back(file);  // Tried again: it is of no use before.
      return Degrade(error, "header of a recovered extent");
    }
    ++counters_.repaired_extents;
    if (!free) return;
    table_.Find(file)->state = ExtentState::kFree;
    Record(file, *table_.Find(file));
  };
  if (free) return WriteFree(file, written);
  EncodeExtentHeader({.extent = file, .use = UseOf(file)}, page_);
  WriteAndSync(file, 0, page_, kPageBytes, written);
}

void DiskLog::WriteFree(FileId file, std::function<void(int)> done) {
  EncodeExtentHeader({.extent = file, .use = UseOf(file), .free = true}, page_);
  WriteAndSync(file, 0, page_, kPageBytes, [this, file, done = std::move(done)](int error) {
    if (error != 0) return done(error);
    WriteAndSync(file, kExtentBytes - kPageBytes, page_, kPageBytes, done);
  });
}

void DiskLog::StartReclaim(FileId victim) {
  Extent& extent = *table_.Find(victim);
  extent.state = ExtentState::kLeaving;
  job_file_ = victim;
  copies_.clear();
  copy_all_ = extent.live_bytes < kSparseBytes;
  copy_loaded_ = copy_reading_ = false;
  if (!extent.footer) {
    job_ = Job::kCopying;
    return PlanCopies(std::move(extent.kept));
  }
  job_ = Job::kLoading;
  const uint32_t bytes = FooterBytes(extent.entries);
  Read(victim, kExtentBytes - bytes, aux_, bytes, [this, bytes](int error) {
    job_ = Job::kCopying;
    const absl::StatusOr<FooterTrailer> trailer = DecodeFooterTrailer(aux_ + bytes - kPageBytes);
    if (error == 0 && trailer.ok() && trailer->use == UseOf(job_file_) &&
        FooterBytes(trailer->entries) == bytes) {
      absl::StatusOr<std::vector<FooterEntry>> entries = DecodeFooterEntries(*trailer, aux_);
      if (entries.ok()) return PlanCopies(*std::move(entries));
    }
    ++counters_.corrupt_footers;
    SayDamage(job_file_, kExtentBytes - bytes, "footer, of an extent that makes room");
    job_ = Job::kErasing;  // Nobody can say what is wanted of it.
    erased_ = 0;
  });
}

// Parts that were read since they were written, up to kCopyBytesMax of them, go to the log's end once more;
// of a nearly empty extent all do.
void DiskLog::PlanCopies(std::vector<FooterEntry> entries) {
  const bool carry_drops = table_.HasOlder(UseOf(job_file_).life);
  uint64_t bytes = 0;
  for (const FooterEntry& place : entries) {
    const bool drop = place.kind != RecordKind::kBlock;
    if (!drop) {
      const DiskEntry* entry = index_.Find(place.block.hash, place.coord);
      if (!IsAt(entry, job_file_, place)) continue;
      const bool pinned = PinOf(entry->retention) != PinKind::kNone;
      if ((entry->uses == 0 && !copy_all_ && !pinned) ||
          bytes + place.length > kCopyBytesMax - kRecordBytesMax) {
        ++counters_.evicted_parts;
        counters_.pins_evicted_parts += pinned;
        EraseEntry(place.block.hash, place.coord, *entry);
        continue;
      }
      bytes += place.length + kPageBytes;
    } else if (!carry_drops) {
      continue;
    }
    const uint32_t end =
        RoundUpTo(std::max(place.data_at + place.length, (place.page + 1) * kPageBytes), kPageBytes);
    if (copies_.empty() || copies_.back().page != place.page)
      copies_.push_back({.page = place.page, .end = end, .parts = {}});
    copies_.back().end = std::max(copies_.back().end, end);
    copies_.back().parts.push_back(place);
  }
  CrashHere(CrashPoint::kReclaimBegun);
}

void DiskLog::CopyOn() {
  if (copy_reading_) return;
  if (!writer_->has_head()) table_.Recount();
  const bool stuck = !writer_->has_head() && table_.free_count() == 0 && creating_ == 0;
  if (stuck && !carried_.has_value()) {
    // A failed write took the open extent, and no other is left: these parts cannot be kept.
    for (const Copy& copy : copies_) {
      for (const FooterEntry& place : copy.parts) {
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
      if (block) EraseEntry(place.block.hash, place.coord, *entry);
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
        if (place->kind == RecordKind::kBlock && IsAt(entry, job_file_, *place))
          EraseEntry(place->block.hash, place->coord, *entry);
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

// Its header says free from here on, or it is gone where fewer files are wanted.
void DiskLog::StartFree() {
  CrashHere(CrashPoint::kReclaimCopied);
  job_ = Job::kFreeing;
  const FileId file = job_file_;
  WriteFree(file, [this, file](int error) {
    if (error != 0) {  // It stays as it is, without live parts, and is tried again.
      FinishJob();
      table_.Find(file)->state = ExtentState::kSealed;
      table_.Find(file)->footer = false;
      return Degrade(error, "freeing an extent");
    }
    CrashHere(CrashPoint::kExtentFreed);
    ++counters_.reclaimed_extents;
    const ExtentUse use = UseOf(file);
    Extent& freed = *table_.Find(file);
    freed = Extent{};
    freed.use = use;
    Record(file, freed);
    if (!table_.IsOverFull() && table_.free_count() < kFreeExtentsMax) return FinishJob();
    freed.state = ExtentState::kLeaving;  // Nobody's until it is gone.
    remove_after_ = manifest_.changes();
    job_ = Job::kRemoving;
  });
}

// Once the manifest says free: a file that it calls used is missed by the next start.
void DiskLog::RemoveFreed() {
  job_ = Job::kFreeing;
  queue_.Submit({.kind = DiskRequest::Kind::kRemove, .file = job_file_}, [this, file = job_file_](int) {
    table_.Remove(file);
    manifest_.Delete(ExtentRowKey(file));
    FinishJob();
  });
}

}  // namespace cistern
