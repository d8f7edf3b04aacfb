#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache_node/block_table.h"
#include "cache_node/coords_seen.h"
#include "cache_node/disk/disk_index.h"
#include "cache_node/disk/disk_memory.h"
#include "cache_node/disk/disk_queue.h"
#include "cache_node/disk/disk_tails.h"
#include "cache_node/disk/extent_row.h"
#include "cache_node/disk/extent_scan.h"
#include "cache_node/disk/extent_table.h"
#include "cache_node/disk/extent_writer.h"
#include "cache_node/disk/manifest.h"
#include "cache_node/disk/read_memory.h"
#include "core/clock.h"
#include "core/random.h"

namespace cistern {

inline constexpr uint32_t kExtentsMin = 3;  // One that is written, one that leaves, one between.
inline constexpr uint64_t kCopyBytesMax = kExtentBytes / 2;  // Of a leaving extent that is written again.
// Of that in one turn, a record's header page counted along: a hit waits so long. Records are cut for it.
inline constexpr uint64_t kReclaimBytesPerTurn = 64u << 10;
inline constexpr size_t kDropsPerTurn = 2048;  // Hashes of drops that one turn appends: 64 KiB.
// Hashes of drops that wait for a disk that takes no writes: 32 MiB. At more, all that is on the disk goes
// with the next start.
inline constexpr size_t kDropsWaitingMax = 1u << 20;
// Entries of an extent that one turn of a start takes into the index, or of reclaim looks at; and hashes of a
// record of drops.
inline constexpr uint32_t kEntriesPerTurn = 1024;
inline constexpr uint32_t kReadyExtents = 2;    // Free files kept ready.
inline constexpr uint32_t kFreeExtentsMax = 4;  // More free files than that give their space back.
inline constexpr Nanos kDegradedRetryMin = kSecond;
inline constexpr Nanos kDegradedRetryMax = 30 * kSecond;
inline constexpr Nanos kMaintainEvery = 2 * kMillisecond;
inline constexpr uint32_t kLifeStep = 16;        // A start goes on so far behind the last life it saw.
inline constexpr uint32_t kDamageLinesMax = 16;  // In kDamageLinesEvery; what is more is told as a number.
inline constexpr Nanos kDamageLinesEvery = 60 * kSecond;

struct DiskLogOptions {
  uint64_t capacity_bytes = 0;  // At least kExtentsMin extents.
  uint64_t ring_bytes = 64u << 20;
  // What people should see. warn: something a person may have to look at.
  std::function<void(bool warn, const std::string& line)> log;
};

struct DiskLogCounters {
  uint64_t durable_parts = 0;       // Gauge.
  uint64_t durable_bytes = 0;       // Gauge.
  uint64_t appended_bytes = 0;      // Part bytes taken from callers.
  uint64_t copied_bytes = 0;        // Part bytes written again by reclaim.
  uint64_t lost_parts = 0;          // Taken, and not durable because a write failed.
  uint64_t evicted_parts = 0;       // Left with their extent.
  uint64_t expired_parts = 0;       // Their time to live ended.
  uint64_t pins_evicted_parts = 0;  // Part of evicted_parts: pinned, and more than an extent may carry on.
  uint64_t reclaimed_extents = 0;
  uint64_t write_errors = 0;
  uint64_t read_errors = 0;
  uint64_t no_space_errors = 0;  // ENOSPC.
  uint64_t corrupt_headers = 0;  // By where the damage was (F37).
  uint64_t corrupt_payloads = 0;
  uint64_t corrupt_footers = 0;
  uint64_t torn_tails = 0;
  uint64_t repaired_extents = 0;  // Header or footer written anew by a start.
  uint64_t recovered_parts = 0;
  uint64_t unnamed_parts =
      0;  // On disk and not taken: kDiskLayoutsMax layouts or kCoordsSeenMax coordinates.
  uint64_t scanned_extents = 0;
  uint64_t lost_drops = 0;    // Nobody knows of what any more: what is older goes with the next start.
  uint64_t lost_extents = 0;  // Gone, or another's or an older file in their place.
  uint64_t degraded_times = 0;
};

// Parts in append-only extents with their index: append, find, read, drop; recovery, reclaim and what to do
// when the disk fails (DESIGN §5, docs/disk_format.md). Knows nothing of RAM.
//
// A part is found as soon as it is appended (its bytes are still in memory), and durable once its batch is
// synced. Owner: DiskTier. Thread: the shard's; everything happens in Poll. Lifetime: disk, manifest and
// clock outlive it.
class DiskLog {
 public:
  // Lists the extents and reads their ends; what they hold is indexed in Poll. InvalidArgument: capacity
  // below kExtentsMin extents; else why the folder cannot be read.
  static absl::StatusOr<std::unique_ptr<DiskLog>> Open(DiskLogOptions options, Disk& disk, Manifest& manifest,
                                                       Clock& clock, Random& random);
  ~DiskLog();

  const DiskEntry* Find(const BlockHash& hash, PartCoord coord) const {
    return hidden_ ? nullptr : index_.Find(hash, coord);
  }
  bool IsLayout(const DiskEntry& entry, const LayoutId& layout) const {
    return index_.IsLayout(entry.layout, layout);
  }

  bool HasTails() const { return !tails_.empty(); }
  // What the log has of the tail behind this block; null: nothing.
  const DiskTails::Tail* FindTail(const BlockHash& block) {
    if (hidden_) return nullptr;
    return tails_.Find(block, [&](PartCoord coord) { return index_.Find(block, coord) != nullptr; });
  }

  enum class Appended : uint8_t {
    kOk,
    kNoRoom,   // The ring, or the log while reclaim is behind: try again after Poll.
    kOff,      // Degraded: not taken.
    kNoName,   // Of a layout beyond kDiskLayoutsMax or a coordinate beyond kCoordsSeenMax: not taken.
    kDamaged,  // A part's bytes do not have their CRC any more.
  };
  Appended Append(RecordHeader& header, absl::Span<const std::byte* const> data);
  // The same in steps. kOk: it has begun, and what `data` names stays until Continue has told its end.
  // Append meanwhile ends it first. A block that is dropped meanwhile is not found afterwards either. kNoRoom
  // also: what the log has to append itself comes first.
  Appended Begin(RecordHeader header, std::vector<const std::byte*> data);
  // Copies up to `budget` bytes, and takes them off it; the end, once it has come.
  std::optional<Appended> Continue(uint64_t& budget);
  void EndCopy();

  // Bytes in memory because they are not durable yet; null: read them from the disk.
  const std::byte* Peek(uint32_t extent, uint32_t offset, uint32_t bytes) const {
    return writer_->Peek(extent, offset, bytes);
  }
  // Keeps the extent until the end is called with errno.
  void Read(uint32_t extent, uint32_t offset, std::byte* data, uint32_t bytes, std::function<void(int)> done);
  ExtentUse UseOf(uint32_t extent);
  void Used(const BlockHash& hash, PartCoord coord);
  // Damage seen by a reader: the entry goes if it is still this place.
  enum class Why : uint8_t { kReadError, kHeader, kPayload };
  void Forget(const BlockHash& hash, PartCoord coord, const DiskEntry& place, Why why);

  // Gone at once for whoever looks; on disk a few milliseconds after EndDrop, which follows the block's last
  // part. True: it was there.
  bool DropPart(const BlockHash& hash, PartCoord coord);
  void EndDrop(const BlockHash& hash);
  const CoordsSeen& coords_seen() const { return coords_seen_; }
  uint64_t DropAll();
  // The same in turns. Nothing is found from Hide on, so that nothing goes up from here while other tiers are
  // emptied. Then DropAllOn, until it says true: a piece of the index costs looks as well, and one that is
  // full all there are. EndDropAll, then or before, lets things be found again; what has begun is told the
  // disk.
  void Hide() { hidden_ = true; }
  bool DropAllOn(uint64_t& looks, uint64_t& dropped);
  void EndDropAll();
  // The block's time has ended: its parts that have one leave the index. In turns: those from
  // coordinate `from` on, `looks` of them at most, which are taken off. True: all were looked at.
  bool Expire(const BlockHash& hash, uint64_t& from, uint64_t& looks);

  bool Poll();
  // Entries that the last Poll took or looked at, at most kEntriesPerTurn.
  uint32_t entries_in_turn() const { return taken_in_turn_; }
  // What the last Poll copied of a leaving extent, at most kReclaimBytesPerTurn.
  uint64_t carried_in_turn() const { return carried_in_turn_; }
  Nanos NextWake() const;
  // Makes all durable and seals the open extent; done when IsIdle.
  void Stop();
  bool IsIdle() const { return writer_->IsIdle() && queue_.open() == 0; }

  size_t drops_waiting() const { return drops_waiting_.size(); }  // At most kDropsWaitingMax.
  bool degraded() const { return degraded_; }
  bool recovering() const { return !scan_queue_.empty(); }
  // Extents still to be scanned by this start, and how many there were.
  uint32_t scan_left() const { return static_cast<uint32_t>(scan_queue_.size()); }
  const DiskLogCounters& counters() const { return counters_; }
  const ExtentWriter& writer() const { return *writer_; }
  const ExtentTable& table() const { return table_; }
  uint64_t metadata_bytes() const { return index_.metadata_bytes(); }
  Segment read_memory() const { return read_memory_; }

  // Of those who read: six of the longest reads.
  static constexpr uint64_t kReadMemoryBytes = 6 * uint64_t{RoundUpTo(kRecordBytesMax, kReadUnitBytes)};

 private:
  DiskLog(DiskLogOptions options, Disk& disk, Manifest& manifest, Clock& clock, Random& random,
          DiskMemory memory);
  void Say(bool warn, const std::string& line) const {
    if (options_.log) options_.log(warn, line);
  }
  // Damage at one place: where, what, and what to do, kDamageLinesMax lines at a time. disk_log_recover.cc.
  void SayDamage(FileId file, uint32_t offset, std::string_view what);
  void SayDamageLeftOut(Nanos now);

  // disk_log_append.cc
  bool HasDropsWaiting() const { return !drops_waiting_.empty() || drop_all_waiting_ || gone_before_ != 0; }
  std::optional<Appended> Refuses(const RecordHeader& header, uint16_t layout);
  void EnterParts(const RecordHeader& header, uint16_t layout);
  // disk_log.cc
  std::optional<FreshExtent> NextExtent();
  void OnDurable(uint32_t extent, absl::Span<const FooterEntry> entries);
  void OnLost(uint32_t extent, absl::Span<const FooterEntry> entries);
  void OnSealed(uint32_t extent, uint32_t data_end, std::vector<FooterEntry> entries, bool footer);
  void Degrade(int error, const char* what);
  void Probe();
  void WriteAndSync(FileId file, uint32_t offset, std::byte* data, uint32_t bytes,
                    std::function<void(int)> done);
  bool MayAppend(uint32_t record_bytes) const;
  void SetEntry(const BlockHash& hash, PartCoord coord, const DiskEntry& entry, TailMark tail);
  void EraseEntry(const BlockHash& hash, PartCoord coord, const DiskEntry& entry);
  void Unaccount(const DiskEntry& entry);
  bool IsAt(const DiskEntry* entry, uint32_t extent, const FooterEntry& place) const;
  void Record(FileId file, const Extent& extent);

  // disk_log_drop.cc
  void NoteDrop(const BlockHash& hash);
  void AppendDrops();
  void AppendDropOfAll();
  void OnDropsDurable(const FooterEntry& record);
  void OnDropsLost(const FooterEntry& record);
  // The generation before which the record says that things are gone.
  static uint64_t WhatItDrops(const FooterEntry& record, const ExtentUse& use) {
    return DroppedBefore(record.block.fingerprint, GenerationOf(use.life, record.page));
  }
  void LoseDrops(uint64_t generation, std::string_view why);
  // Of the leaving extent.
  static constexpr std::string_view kNotKept = "a record of drops cannot be kept";
  void LoseDropsOf(const FooterEntry& record) { LoseDrops(WhatItDrops(record, UseOf(job_file_)), kNotKept); }
  void EraseOn();
  void SearchOn();
  void SearchIn(const std::byte* pages, uint32_t bytes);

  // disk_log_recover.cc
  absl::Status ReadAllEnds();
  absl::Status ReadEnds(FileId file, uint64_t& life);
  void FreeUnbegun(FileId file);
  // Nobody's until a header that says free is synced: what says so now may go with the next power cut.
  void FreeAgain(FileId file);
  void FoundNothing(FileId file, const ExtentScan& scan);
  bool IsLost(FileId file, const std::optional<ExtentRow>& row, const FoundExtent& found);
  void OpenLog();
  bool RecoverStep();
  absl::StatusOr<bool> ScanOn();
  void BeginTaking();
  bool TakeOn();
  bool TakeDropsAt(const FooterEntry& entry);
  void Taken();
  void TakeNothingBefore(FileId file, uint64_t generation);
  bool ApplyDrop(const FooterEntry& entry, const ExtentUse& use, const std::byte* payload);
  void TakeEntry(FileId file, const ExtentUse& use, const FooterEntry& entry);
  void SayUnnamed();
  void MarkUnreadable(FileId file, const absl::Status& why);
  void CountFindings(FileId file, const std::vector<ScanFinding>& findings);

  // disk_log_reclaim.cc
  void MaintainStep();
  void CreateExtents();
  void StartSeal(FileId file);
  void StartRepair(FileId file);
  // Its header says free on the disk, and then its last page as well: the header of its next use may be torn.
  void WriteFree(FileId file, std::function<void(int)> done);
  void StartReclaim(FileId victim);
  void FooterIsDamaged();
  void StartErasing();
  void LeaveOrStay();
  void StartFree();
  void RemoveFreed();
  void FinishJob();

  // disk_log_carry.cc
  struct Copy {
    uint32_t page = 0;
    uint32_t end = 0;  // Of the wanted bytes, in the extent.
    std::vector<FooterEntry> parts;
  };
  void StartPlanning(std::vector<FooterEntry> entries, uint32_t count);
  void PlanOn();
  void PlanCopy(const FooterEntry& place);
  void CopyOn();
  void CopyRecords(uint64_t& budget);
  bool BeginCarrying();
  bool CarryOn(uint64_t& budget);
  void Carried();

  const DiskLogOptions options_;
  Manifest& manifest_;
  Clock& clock_;
  Random& random_;
  DiskMemory memory_;  // Ring, read buffers, then what follows here.
  Segment read_memory_{};
  std::byte* aux_ = nullptr;   // A footer, or a piece of a leaving extent: one job at a time.
  std::byte* page_ = nullptr;  // A header page of the job.
  std::byte* probe_page_ = nullptr;
  DiskQueue queue_;
  DiskIndex index_;
  DiskTails tails_;
  ExtentTable table_;
  std::unique_ptr<ExtentWriter> writer_;
  RecordHeader copied_;                  // Of Begin; the writer names it.
  uint16_t copied_layout_ = 0;           // Its layout's number.
  bool copied_dropped_ = false;          // Its block was, meanwhile.
  std::optional<Appended> copy_result_;  // Ended before Continue was asked.
  DiskLogCounters counters_;
  uint64_t next_life_ = 1;
  CoordsSeen coords_seen_;
  bool drop_tells_ = false;              // The block that is being dropped goes into a record.
  std::deque<BlockHash> drops_waiting_;  // For a record,
  std::deque<BlockHash> drops_flying_;   // and in records that are not durable yet.
  bool drop_all_waiting_ = false;
  bool hidden_ = false;
  bool dropping_all_ = false;  // How far: pieces of the index, and of the tails.
  size_t drop_piece_ = 0, drop_tail_ = 0;
  // Not 0: a record of drops could not be kept. Everything before this generation goes with the next start,
  // and a record that says so waits.
  uint64_t gone_before_ = 0;

  // Recovery, newest extent first: what is gone is known before what it was.
  std::vector<FileId> scan_queue_;  // Next at the back.
  std::unique_ptr<ExtentScan> scan_;
  // Of the extent that was scanned, what goes into the index: first its drops, then its parts.
  enum class Taking : uint8_t { kNothing, kDrops, kParts };
  Taking taking_ = Taking::kNothing;
  size_t take_at_ = 0;    // Of its entries,
  uint32_t hash_at_ = 0;  // and of a record of drops.
  uint32_t taken_in_turn_ = 0;
  BlockTable<uint64_t> dropped_;  // Block -> generation of the drop.
  size_t forgotten_ = 0;          // Pieces of it, after the start.
  uint64_t dropped_all_ = 0;

  // The job under way: footers of recovered extents, repairs, reclaim.
  enum class Job : uint8_t {
    kNone,
    kWriting,
    kLoading,
    kPlanning,
    kErasing,
    kSearching,
    kCopying,
    kLeaving,
    kFreeing,
    kRemoving
  };
  Job job_ = Job::kNone;
  FileId job_file_ = 0;
  std::vector<FileId> seal_queue_, repair_queue_;
  size_t erased_ = 0;  // Pieces of the index, of an extent whose parts nobody can name.
  // Its records of drops are looked for from here on, and so many are missing.
  uint32_t search_at_ = 0, drops_missing_ = 0;
  bool carry_again_ = false;  // A record of drops was lost on its way to the log's end.
  // What is looked at of the leaving extent: entries that memory has, or those of a footer in aux_.
  std::optional<FooterTrailer> plan_footer_;
  std::vector<FooterEntry> plan_entries_;
  uint32_t plan_at_ = 0, plan_count_ = 0;
  bool plan_drops_ = false;  // They go on, too.
  uint64_t plan_bytes_ = 0;
  std::deque<Copy> copies_;
  bool copy_all_ = false;  // Also what was never read.
  bool copy_loaded_ = false, copy_reading_ = false;
  std::optional<RecordHeader>
      carried_;  // Of copies_.front(), on its way to the log's end; the writer names it.
  uint64_t carried_in_turn_ = 0;
  // The writer takes one record after the other: callers' and reclaim's in turn, where both have some.
  bool callers_turn_ = false, reclaims_turn_ = false;
  uint32_t copy_begin_ = 0, copy_end_ = 0;
  uint64_t leave_after_ = 0;   // The writer's `ended` at which all copies are on disk.
  uint64_t remove_after_ = 0;  // The manifest's changes that have to be settled first.
  uint32_t creating_ = 0;
  Nanos maintain_at_ = 0;
  Nanos damage_until_ = 0;  // Of the time that damage_lines_ counts.
  uint32_t damage_lines_ = 0;
  uint64_t damage_left_out_ = 0;
  Nanos create_blocked_until_ = 0;

  bool stopping_ = false;
  bool said_unnamed_ = false;
  bool degraded_ = false;
  bool probing_ = false;
  Nanos retry_after_ = kDegradedRetryMin;
  Nanos retry_at_ = kNever;
};

}  // namespace cistern
