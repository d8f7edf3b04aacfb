// What the log does beside serving: files made ahead, recovered extents sealed, extents emptied and freed.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/crash_point.h"
#include "cache_node/disk/disk_log.h"

namespace cistern {
namespace {

constexpr uint32_t kSpareFrom = 16;  // Extents from which on reclaim keeps more than one free.

}  // namespace

void DiskLog::MaintainStep() {
  if (stopping_) return;
  if (job_ == Job::kPlanning) return PlanOn();
  if (job_ == Job::kErasing) return EraseOn();
  if (job_ == Job::kSearching) return SearchOn();
  if (job_ == Job::kCopying) return CopyOn();
  // It looks at all extents: not in every turn.
  const Nanos now = clock_.Now();
  if (now < maintain_at_) return;
  maintain_at_ = now + kMaintainEvery;
  SayDamageLeftOut(now);
  table_.Recount();
  CreateExtents();
  if (job_ == Job::kLeaving) {
    if (writer_->ended() >= leave_after_ && table_.Find(job_file_)->readers == 0) LeaveOrStay();
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
  carry_again_ = false;
  if (!extent.footer && extent.kept.size() == extent.entries) {
    plan_footer_.reset();
    return StartPlanning(std::exchange(extent.kept, {}), extent.entries);
  }
  if (!extent.footer) return StartErasing();
  job_ = Job::kLoading;
  const uint32_t bytes = FooterBytes(extent.entries);
  Read(victim, kExtentBytes - bytes, aux_, bytes, [this, bytes](int error) {
    const absl::StatusOr<FooterTrailer> trailer = DecodeFooterTrailer(aux_ + bytes - kPageBytes);
    if (error == 0 && trailer.ok() && trailer->use == UseOf(job_file_) &&
        FooterBytes(trailer->entries) == bytes && FooterIsWhole(*trailer, aux_)) {
      plan_footer_ = *trailer;
      return StartPlanning({}, trailer->entries);
    }
    FooterIsDamaged();
  });
}

void DiskLog::FooterIsDamaged() {
  ++counters_.corrupt_footers;
  SayDamage(job_file_, kExtentBytes - FooterBytes(table_.Find(job_file_)->entries),
            "footer, of an extent that makes room");
  StartErasing();
}

// Nobody can say what is wanted of it.
void DiskLog::StartErasing() {
  copies_.clear();
  job_ = Job::kErasing;
  erased_ = 0;
}

// All that went on is on the disk. Or a write failed: then what it dropped goes on with the next try.
void DiskLog::LeaveOrStay() {
  if (!carry_again_) return StartFree();
  table_.Find(job_file_)->state = ExtentState::kSealed;
  FinishJob();
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
      table_.Find(file)->entries = table_.Find(file)->drops = 0;  // They have gone on.
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
