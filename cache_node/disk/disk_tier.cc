#include "cache_node/disk/disk_tier.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/check.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr double kBudgetBurstSeconds = 3600;  // An hour's share may be written at once.

}  // namespace

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(DiskTierOptions options, std::unique_ptr<Disk> disk,
                                                         std::unique_ptr<Manifest> manifest, Clock& clock,
                                                         uint64_t seed) {
  std::unique_ptr<DiskTier> tier(
      new DiskTier(std::move(options), std::move(disk), std::move(manifest), clock, seed));
  CISTERN_ASSIGN_OR_RETURN(
      tier->log_, DiskLog::Open(tier->options_.log, *tier->disk_, *tier->manifest_, clock, tier->random_));
  tier->read_memory_.emplace(tier->log_->read_memory());
  return tier;
}

DiskTier::DiskTier(DiskTierOptions options, std::unique_ptr<Disk> disk, std::unique_ptr<Manifest> manifest,
                   Clock& clock, uint64_t seed)
    : options_(std::move(options)),
      clock_(clock),
      random_(seed),
      manifest_(std::move(manifest)),
      disk_(std::move(disk)),
      budget_bytes_(static_cast<double>(options_.daily_write_bytes) * kBudgetBurstSeconds / 86400),
      budget_at_(clock.Now()) {
  const int64_t unix_now = options_.unix_now ? options_.unix_now() : ::time(nullptr);
  unix_base_ = unix_now - clock.Now() / kSecond;
  book_.emplace(*manifest_, UnixNow(), random_);
  wants_.reserve(options_.stage_wants_max);  // Touched where it is used.
}

DiskTier::~DiskTier() {
  if (ram_ != nullptr) ram_->SetEvictionHook(nullptr);
}

void DiskTier::Attach(RamTier& ram) {
  ram_ = &ram;
  backlog_bytes_ = std::min<uint64_t>(ram.capacity_bytes() / 4, kBacklogBytesMax);
  ram.SetEvictionHook([this](absl::Span<const SlotId> slots) { Evicting(slots); });
}

PartResult DiskTier::Judge(const BlockKey& block, PartCoord coord, const LayoutId& layout,
                           uint32_t part_bytes) {
  const DiskEntry* entry = log_->Find(block.hash, coord);
  if (entry == nullptr) return PartResult::kMiss;
  if (entry->fingerprint != DiskEntry::Fold(block.fingerprint)) {
    ++counters_.collisions;
    return PartResult::kMiss;
  }
  if ((entry->retention & kRetentionTimed) != 0 && !book_->IsLive(block.hash, UnixNow())) {
    ram_->NoteExpired(block.hash);
    return PartResult::kMiss;
  }
  return entry->length == part_bytes && log_->IsLayout(*entry, layout) ? PartResult::kOk
                                                                       : PartResult::kLayout;
}

bool DiskTier::HasTail(const BlockHash& block) const {
  const DiskTails::Tail* tail = log_->FindTail(block);
  if (tail == nullptr) return false;
  size_t parts = tail->coords.size();
  for (const SlotId slot : ram_->TailSlots(block)) {
    parts += !tail->Has(PartCoord::Unpack(ram_->trailer(slot).coord));
  }
  return parts >= tail->wanted;
}

// --- storing

BlockHash DiskTier::HashOf(SlotId slot) const {
  BlockHash hash;
  std::memcpy(hash.bytes.data(), ram_->trailer(slot).hash, hash.bytes.size());
  return hash;
}

bool DiskTier::IsStored(SlotId slot) {
  const SlotTrailer& trailer = ram_->trailer(slot);
  return Judge({.hash = HashOf(slot), .fingerprint = trailer.fingerprint}, PartCoord::Unpack(trailer.coord),
               ram_->LayoutOf(slot), ram_->record(slot).length) == PartResult::kOk;
}

void DiskTier::Drop(uint64_t& reason, uint64_t parts) {
  reason += parts;
  counters_.offload_dropped_parts += parts;
}

bool DiskTier::TakeBudget(uint64_t bytes) {
  if (options_.daily_write_bytes == 0) return true;
  const double a_second = static_cast<double>(options_.daily_write_bytes) / 86400;
  const Nanos now = clock_.Now();
  budget_bytes_ = std::min(budget_bytes_ + a_second * static_cast<double>(now - budget_at_) / 1e9,
                           a_second * kBudgetBurstSeconds);
  budget_at_ = now;
  if (budget_bytes_ < static_cast<double>(bytes)) return false;
  budget_bytes_ -= static_cast<double>(bytes);
  return true;
}

// The first parts of `slots`, all of one block, as one record, or as many of them as share one.
DiskTier::Record DiskTier::RecordOf(absl::Span<const SlotId> slots, uint32_t depth) {
  Record record;
  RecordHeader& header = record.header;
  header.block = {.hash = HashOf(slots[0]), .fingerprint = ram_->trailer(slots[0]).fingerprint};
  header.depth = depth;
  for (const SlotId slot : slots) {
    const SlotRecord& part = ram_->record(slot);
    const SlotTrailer& trailer = ram_->trailer(slot);
    const uint32_t at = RoundUpTo(header.PayloadBytes(), kPartAlign);
    const bool full = header.parts.size() == kPartsPerRecordMax || at + part.length > kRecordPayloadMax;
    const bool visible = part.state() == SlotState::kVisible;  // Else dropped while it waited.
    const TailMark tail = visible ? ram_->TailMarkOf(slot) : header.tail;
    const uint16_t retention = visible ? RetentionFlags(ram_->HolderOf(slot).retention) : header.retention;
    if (!header.parts.empty() && (full || tail != header.tail || retention != header.retention)) break;
    ++record.taken;
    if (!visible) continue;
    header.tail = tail;
    header.layout = ram_->LayoutOf(slot);
    if (IsStored(slot)) continue;
    header.retention = retention;
    if (record.first == kNoSlot) record.first = slot;
    header.parts.push_back(
        {.coord = PartCoord::Unpack(trailer.coord), .at = at, .length = part.length, .crc = trailer.crc});
    record.data.push_back(ram_->data(slot));
    record.bytes += part.length;
  }
  return record;
}

// Whether a record is to be written at all; what is not is counted.
bool DiskTier::MayStore(const Record& record) {
  const size_t parts = record.header.parts.size();
  if (parts == 0) return false;
  // The end first: parts whose row is not there have ended.
  if ((record.header.retention & kRetentionTimed) != 0 && !WriteEnd(record.first))
    return Drop(counters_.dropped_retention, parts), false;
  if (!TakeBudget(record.bytes + kPageBytes)) return Drop(counters_.dropped_budget, parts), false;
  return true;
}

void DiskTier::Ended(DiskLog::Appended how, size_t parts, uint64_t bytes) {
  switch (how) {
    case DiskLog::Appended::kOk:
      counters_.stored_parts += parts;
      if (!options_.write_through) counters_.demoted_parts += parts;
      break;
    case DiskLog::Appended::kNoRoom:
      budget_bytes_ += static_cast<double>(bytes + kPageBytes);
      break;
    case DiskLog::Appended::kOff:
      Drop(counters_.dropped_degraded, parts);
      break;
    case DiskLog::Appended::kNoName:
      Drop(counters_.dropped_names, parts);
      break;
    case DiskLog::Appended::kDamaged:
      Drop(counters_.dropped_damaged, parts);
      break;
  }
}

void DiskTier::Published(absl::Span<const SlotId> slots, absl::Span<const uint32_t> depths) {
  if (!options_.write_through || stopping_) return;
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t length = ram_->record(slots[i]).length;
    // Much waits for its turn only: rather a late hit than parts that are not on disk (F42).
    if (waiting_bytes_ + length > backlog_bytes_ / 2 && !blocked_) DrainWaiting(length);
    if (waiting_bytes_ + length > backlog_bytes_ || log_->degraded() || !ram_->TryLease(slots[i])) {
      Drop(log_->degraded() ? counters_.dropped_degraded : counters_.dropped_backlog, 1);
      continue;
    }
    waiting_.push_back({slots[i], depths[i]});
    waiting_bytes_ += length;
  }
}

// Stores up to so many bytes of what waits, in the order of its arrival, so that the log keeps that. In
// turns, so that hits do not wait for it: a record may take several.
uint64_t DiskTier::DrainWaiting(uint64_t bytes_max) {
  std::vector<SlotId> block;
  uint64_t left = bytes_max;
  blocked_ = false;
  while (!waiting_.empty() && left > 0) {
    if (copying_.has_value()) {
      const std::optional<DiskLog::Appended> end = log_->Continue(left);
      if (!end.has_value()) break;
      Ended(*end, copying_->parts, copying_->bytes);
      TakeWaiting(copying_->taken);
      copying_.reset();
      continue;
    }
    block.clear();
    const BlockHash hash = HashOf(waiting_.front().slot);
    for (const Waiting& one : waiting_) {
      if (block.size() == kPartsPerRecordMax || HashOf(one.slot) != hash) break;
      block.push_back(one.slot);
    }
    Record record = RecordOf(block, waiting_.front().depth);
    if (!MayStore(record)) {
      TakeWaiting(record.taken);
      continue;
    }
    const size_t parts = record.header.parts.size();
    const DiskLog::Appended begun = log_->Begin(std::move(record.header), std::move(record.data));
    if (begun == DiskLog::Appended::kOk) {
      copying_ = Copying{.taken = record.taken, .parts = parts, .bytes = record.bytes};
      continue;
    }
    Ended(begun, parts, record.bytes);
    blocked_ = begun == DiskLog::Appended::kNoRoom;
    if (blocked_) break;
    TakeWaiting(record.taken);
  }
  return bytes_max - left;
}

void DiskTier::TakeWaiting(size_t count) {
  for (; count > 0; --count) {
    waiting_bytes_ -= ram_->record(waiting_.front().slot).length;
    ram_->Unlease(waiting_.front().slot);
    waiting_.pop_front();
  }
}

// RAM makes room: the last chance for parts that are not on disk.
void DiskTier::Evicting(absl::Span<const SlotId> slots) {
  if (stopping_) return;
  evicted_class_ = ram_->ClassOf(slots[0]);
  const uint64_t before = counters_.stored_parts;
  while (!slots.empty()) {
    Record record = RecordOf(slots, 0);
    if (MayStore(record)) {
      const size_t parts = record.header.parts.size();
      const DiskLog::Appended stored = log_->Append(record.header, record.data);
      Ended(stored, parts, record.bytes);
      if (stored == DiskLog::Appended::kNoRoom) Drop(counters_.dropped_backlog, parts);
    }
    slots.remove_prefix(record.taken);
  }
  if (options_.write_through) counters_.demoted_parts += counters_.stored_parts - before;
}

// What will be evicted next takes its place among what waits: a part, a tail, or a part and the tail that
// goes with it. Not where writes are counted: then only what has to go is written.
void DiskTier::CleanAhead() {
  if (evicted_class_ == kNoClass || blocked_ || stopping_ || log_->degraded()) return;
  const ClassId size_class = std::exchange(evicted_class_, kNoClass);
  if (options_.daily_write_bytes != 0) return;
  const uint64_t bytes_max = std::min<uint64_t>(kCleanAheadBytes, ram_->capacity_bytes() / 8);
  uint64_t bytes = 0;
  size_t parts = 0;
  uint32_t looks = 0;
  std::vector<SlotId> together;
  ram_->NextToGo(size_class, [&](SlotId slot) {
    ++counters_.clean_ahead_looks;
    const absl::Span<const SlotId> tail = ram_->TailSlots(HashOf(slot));
    together.clear();
    if (!tail.empty() && ram_->record(tail[0]).goes_first == 0) together.assign(tail.begin(), tail.end());
    if (ram_->record(slot).tail == 0) together.push_back(slot);
    uint64_t size = 0;
    for (const SlotId one : together) size += ram_->record(one).length;
    // The first may be more: a tail goes as one.
    const bool fits = bytes + size <= bytes_max && parts + together.size() <= kCleanAheadParts;
    if (parts > 0 && !fits) return false;
    bytes += size;
    parts += together.size();
    for (const SlotId one : together) {
      const uint32_t length = ram_->record(one).length;
      if (ram_->record(one).leases != 0 || IsStored(one)) continue;
      if (waiting_bytes_ + length > backlog_bytes_ || !ram_->TryLease(one)) continue;
      waiting_.push_back({.slot = one});
      waiting_bytes_ += length;
    }
    return fits && ++looks < kCleanAheadLooksMax;
  });
}

// --- life

bool DiskTier::Poll() {
  bool any = log_->Poll();
  PumpReads();
  CleanAhead();
  // Where there is something to copy in both directions, each has half of a turn.
  const bool both = !waiting_.empty() && !blocked_;
  const uint64_t turn = kDiskCopyBytesPerTurn - log_->carried_in_turn();
  const size_t lands = landings_.size();
  const uint64_t landed = LandOn(both ? turn / 2 : turn);
  any |= landed > 0 || landings_.size() != lands;
  if (!waiting_.empty()) {
    const size_t before = waiting_.size();
    any |= DrainWaiting(turn - landed) > 0 || waiting_.size() != before;
  }
  SweepExpired();
  return any || groups_.HasReady();
}

Nanos DiskTier::NextWake() const {
  if (groups_.HasReady() || !landings_.empty()) return 0;
  // Room in the log comes with the end of a write, which wakes; or with time, where reclaim is behind.
  const Nanos waiting = waiting_.empty() ? kNever : blocked_ ? clock_.Now() + kMillisecond : 0;
  return std::min({log_->NextWake(), waiting, expiring_.has_value() ? sweep_at_ : kNever});
}

void DiskTier::Stop(Nanos patience) {
  const Nanos until = clock_.Now() + patience;
  while (!waiting_.empty() && clock_.Now() < until && !log_->degraded()) Poll();
  log_->EndCopy();
  copying_.reset();
  GiveUpArriving();
  counters_.offload_dropped_parts += waiting_.size();
  counters_.dropped_backlog += waiting_.size();
  TakeWaiting(waiting_.size());
  stopping_ = true;
  log_->Stop();
  while (!log_->IsIdle() && clock_.Now() < until) log_->Poll();
  manifest_->Flush();
}

void DiskTier::AddStats(NodeStats& stats) const {
  const DiskLogCounters& log = log_->counters();
  const ExtentWriter& writer = log_->writer();
  stats.tiers.push_back({.tier = "nvme",
                         .used_bytes = log.durable_bytes,
                         .capacity_bytes = uint64_t{log_->table().capacity()} * kExtentBytes,
                         .parts = log.durable_parts});
  auto& out = stats.counters;
  out["nvme_degraded"] = log_->degraded() ? 1 : 0;
  out["nvme_scan_left_extents"] = log_->scan_left();
  out["nvme_extents"] = log_->table().count();
  out["nvme_free_extents"] = log_->table().free_count();
  out["nvme_waiting_bytes"] = waiting_bytes_;
  out["nvme_metadata_bytes"] = log_->metadata_bytes();
  out["nvme_stored_parts_total"] = counters_.stored_parts;
  out["nvme_demoted_parts_total"] = counters_.demoted_parts;
  out["nvme_appended_bytes_total"] = log.appended_bytes;
  out["nvme_copied_bytes_total"] = log.copied_bytes;
  out["nvme_written_bytes_total"] = writer.written_bytes();
  out["nvme_syncs_total"] = writer.syncs();
  // 1,000,000: every byte was written once.
  out["nvme_write_amplification_ppm"] =
      log.appended_bytes == 0
          ? 0
          : writer.written_bytes() * 1'000 / std::max<uint64_t>(log.appended_bytes / 1'000, 1);
  out["offload_dropped_total"] = counters_.offload_dropped_parts;
  out["offload_dropped_backlog_total"] = counters_.dropped_backlog;
  out["offload_dropped_degraded_total"] = counters_.dropped_degraded;
  out["offload_dropped_budget_total"] = counters_.dropped_budget;
  out["offload_dropped_retention_total"] = counters_.dropped_retention;
  out["offload_dropped_names_total"] = counters_.dropped_names;
  out["offload_dropped_damaged_total"] = counters_.dropped_damaged;
  out["nvme_lost_parts_total"] = log.lost_parts;
  out["nvme_staged_parts_total"] = counters_.staged_parts;
  out["nvme_staged_bytes_total"] = counters_.staged_bytes;
  out["nvme_stage_reads_total"] = counters_.stage_reads;
  out["nvme_stage_failed_parts_total"] = counters_.stage_failed_parts;
  out["nvme_collisions_rejected_total"] = counters_.collisions;
  out["nvme_evicted_parts_total"] = log.evicted_parts;
  out["nvme_expired_parts_total"] = log.expired_parts;
  out["nvme_pins_evicted_parts_total"] = log.pins_evicted_parts;
  out["nvme_timed_blocks"] = book_->size();
  out["nvme_reclaimed_extents_total"] = log.reclaimed_extents;
  out["nvme_write_errors_total"] = log.write_errors;
  out["nvme_read_errors_total"] = log.read_errors;
  out["nvme_no_space_errors_total"] = log.no_space_errors;
  out["nvme_degraded_total"] = log.degraded_times;
  out["corruption_header_total"] = log.corrupt_headers;
  out["corruption_payload_total"] = log.corrupt_payloads;
  out["corruption_footer_total"] = log.corrupt_footers;
  out["nvme_torn_tails_total"] = log.torn_tails;
  out["nvme_repaired_extents_total"] = log.repaired_extents;
  out["nvme_lost_extents_total"] = log.lost_extents;
  out["nvme_drops_waiting"] = log_->drops_waiting();
  out["nvme_lost_drops_total"] = log.lost_drops;
  out["nvme_unnamed_parts_total"] = log.unnamed_parts;
  out["nvme_recovered_parts_total"] = log.recovered_parts;
  out["corruption_manifest_total"] = options_.manifest_rebuilt ? 1 : 0;
  out["manifest_commits_total"] = manifest_->commits();
  out["manifest_failed_commits_total"] = manifest_->failed_commits();
}

}  // namespace cistern
