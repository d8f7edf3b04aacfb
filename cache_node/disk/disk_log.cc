#include "cache_node/disk/disk_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/crash_point.h"
#include "cache_node/disk/extent_row.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kAuxBytes = std::max<uint64_t>(FooterBytes(kEntriesPerExtentMax), kRecordBytesMax);

}  // namespace

absl::StatusOr<std::unique_ptr<DiskLog>> DiskLog::Open(DiskLogOptions options, Disk& disk, Manifest& manifest,
                                                       Clock& clock, Random& random) {
  if (options.capacity_bytes / kExtentBytes < kExtentsMin) {
    return absl::InvalidArgumentError(absl::StrCat("nvme of ", options.capacity_bytes >> 20,
                                                   " MiB is too little: ", "the log needs ",
                                                   kExtentsMin * (kExtentBytes >> 20), " MiB"));
  }
  options.ring_bytes = std::max<uint64_t>(options.ring_bytes, kWriteRingMin) / kPageBytes * kPageBytes;
  CISTERN_ASSIGN_OR_RETURN(DiskMemory memory, DiskMemory::Create(options.ring_bytes + kReadMemoryBytes +
                                                                 kAuxBytes + 2 * kPageBytes));
  disk.RegisterMemory(memory.segment());
  std::unique_ptr<DiskLog> log(
      new DiskLog(std::move(options), disk, manifest, clock, random, std::move(memory)));
  CISTERN_RETURN_IF_ERROR(log->ReadAllEnds());
  log->OpenLog();
  return log;
}

DiskLog::DiskLog(DiskLogOptions options, Disk& disk, Manifest& manifest, Clock& clock, Random& random,
                 DiskMemory memory)
    : options_(std::move(options)),
      manifest_(manifest),
      clock_(clock),
      random_(random),
      memory_(std::move(memory)),
      read_memory_{.data = memory_.data() + options_.ring_bytes, .bytes = kReadMemoryBytes},
      aux_(read_memory_.data + read_memory_.bytes),
      page_(aux_ + kAuxBytes),
      probe_page_(page_ + kPageBytes),
      queue_(disk),
      index_(random),
      tails_(random),
      table_(static_cast<uint32_t>(std::min<uint64_t>(options_.capacity_bytes / kExtentBytes, kExtentsMax))),
      dropped_(random) {
  WriterEvents events;
  events.next_extent = [this] { return NextExtent(); };
  events.durable = [this](uint32_t extent, absl::Span<const FooterEntry> entries) {
    OnDurable(extent, entries);
  };
  events.lost = [this](uint32_t extent, absl::Span<const FooterEntry> entries) { OnLost(extent, entries); };
  events.sealed = [this](uint32_t extent, uint32_t data_end, std::vector<FooterEntry> entries, bool footer) {
    OnSealed(extent, data_end, std::move(entries), footer);
  };
  events.failed = [this](int error) { Degrade(error, "write"); };
  writer_ = std::make_unique<ExtentWriter>(
      queue_, clock, Segment{.data = memory_.data(), .bytes = options_.ring_bytes}, std::move(events));
}

// The disk must be gone, or idle: it reads and writes memory_ (DiskTier sees to it).
DiskLog::~DiskLog() = default;

std::optional<FreshExtent> DiskLog::NextExtent() {
  if (degraded_) return std::nullopt;
  const std::optional<FileId> file = table_.TakeFree();
  if (!file.has_value()) return std::nullopt;
  Extent& extent = *table_.Find(*file);
  extent = Extent{};
  extent.state = ExtentState::kOpen;
  extent.use = {.life = next_life_++, .nonce = random_.Next()};
  Record(*file, extent);
  return FreshExtent{.extent = *file, .use = extent.use};
}

// What the manifest keeps of an extent; the extent itself is the truth.
// An extent that takes no more is called sealed once its footer is there: an end in between leaves it open.
void DiskLog::Record(FileId file, const Extent& extent) {
  const bool closing = extent.state == ExtentState::kSealed && !extent.footer;
  manifest_.Put(ExtentRowKey(file), EncodeExtentRow({.state = closing ? ExtentState::kOpen : extent.state,
                                                     .life = extent.use.life,
                                                     .nonce = extent.use.nonce,
                                                     .data_end = extent.data_end,
                                                     .records = extent.records}));
}

// --- index, with the sums that go with it

void DiskLog::SetEntry(const BlockHash& hash, PartCoord coord, const DiskEntry& entry, TailMark tail) {
  CISTERN_CHECK(coords_seen_.Add(coord.Packed()));  // Who sets it has asked.
  if (DiskEntry* old = index_.Find(hash, coord); old != nullptr) Unaccount(*old);
  index_.Insert(hash, coord, entry);
  if (tail.parts != 0) tails_.Add(hash, coord, tail);
  Extent& extent = *table_.Find(entry.extent);
  ++extent.live_parts;
  extent.live_bytes += entry.length;
  if (entry.durable) ++counters_.durable_parts, counters_.durable_bytes += entry.length;
}

void DiskLog::Unaccount(const DiskEntry& entry) {
  if (Extent* extent = table_.Find(entry.extent); extent != nullptr) {
    --extent->live_parts;
    extent->live_bytes -= entry.length;
  }
  if (entry.durable) --counters_.durable_parts, counters_.durable_bytes -= entry.length;
}

void DiskLog::EraseEntry(const BlockHash& hash, PartCoord coord, const DiskEntry& entry) {
  Unaccount(entry);
  index_.Erase(hash, coord);
  if (!tails_.empty()) tails_.Erase(hash, coord);
}

bool DiskLog::IsAt(const DiskEntry* entry, uint32_t extent, const FooterEntry& place) const {
  return entry != nullptr && entry->IsAt(extent, place.data_at);
}

// --- writing

void DiskLog::OnDurable(uint32_t extent, absl::Span<const FooterEntry> entries) {
  for (const FooterEntry& place : entries) {
    DiskEntry* entry = index_.Find(place.block.hash, place.coord);
    if (place.kind != RecordKind::kBlock) OnDropsDurable(place);
    if (place.kind != RecordKind::kBlock || !IsAt(entry, extent, place) || entry->durable) continue;
    entry->durable = true;
    ++counters_.durable_parts;
    counters_.durable_bytes += entry->length;
  }
}

void DiskLog::OnLost(uint32_t extent, absl::Span<const FooterEntry> entries) {
  for (const FooterEntry& place : entries) {
    if (place.kind != RecordKind::kBlock) {
      OnDropsLost(place);
      continue;
    }
    ++counters_.lost_parts;
    DiskEntry* entry = index_.Find(place.block.hash, place.coord);
    if (IsAt(entry, extent, place)) EraseEntry(place.block.hash, place.coord, *entry);
  }
}

void DiskLog::OnSealed(uint32_t file, uint32_t data_end, std::vector<FooterEntry> entries, bool footer) {
  Extent& extent = *table_.Find(file);
  extent.state = ExtentState::kSealed;
  extent.footer = footer;
  extent.data_end = data_end;
  extent.entries = static_cast<uint32_t>(entries.size());
  extent.drops =
      static_cast<uint32_t>(std::count_if(entries.begin(), entries.end(), [](const FooterEntry& entry) {
        return entry.kind != RecordKind::kBlock;
      }));
  if (!footer) extent.kept = std::move(entries);
  Record(file, extent);
}

// --- reading

void DiskLog::Read(uint32_t extent, uint32_t offset, std::byte* data, uint32_t bytes,
                   std::function<void(int)> done) {
  Extent* held = table_.Find(extent);
  CISTERN_CHECK(held != nullptr);
  ++held->readers;
  queue_.Submit(
      {.kind = DiskRequest::Kind::kRead, .file = extent, .offset = offset, .data = data, .bytes = bytes},
      [this, extent, done = std::move(done)](int error) {
        --table_.Find(extent)->readers;
        if (error != 0) ++counters_.read_errors;
        done(error);
      });
}

ExtentUse DiskLog::UseOf(uint32_t extent) {
  const Extent* found = table_.Find(extent);
  return found == nullptr ? ExtentUse{} : found->use;
}

void DiskLog::Used(const BlockHash& hash, PartCoord coord) {
  DiskEntry* entry = index_.Find(hash, coord);
  if (entry != nullptr && entry->uses < kDiskUsesMax) ++entry->uses;
}

void DiskLog::Forget(const BlockHash& hash, PartCoord coord, const DiskEntry& place, Why why) {
  counters_.corrupt_headers += why == Why::kHeader;
  counters_.corrupt_payloads += why == Why::kPayload;
  SayDamage(place.extent, place.page * kPageBytes,
            why == Why::kHeader    ? "header of a record that was asked for"
            : why == Why::kPayload ? "payload of a record that was asked for"
                                   : "a record that was asked for cannot be read");
  const DiskEntry* entry = index_.Find(hash, coord);
  if (entry == nullptr || !entry->IsAt(place)) return;
  EraseEntry(hash, coord, *entry);
}

// --- life

bool DiskLog::Poll() {
  taken_in_turn_ = 0;
  bool any = queue_.Poll();
  if (recovering() && !stopping_) any |= RecoverStep();
  if (!recovering() && !dropped_.empty()) dropped_.ErasePiece(forgotten_++);
  AppendDrops();
  carried_in_turn_ = 0;
  MaintainStep();
  any |= carried_in_turn_ > 0;
  any |= writer_->Poll();
  any |= queue_.Poll();
  if (degraded_ && !probing_ && clock_.Now() >= retry_at_) Probe();
  return any;
}

Nanos DiskLog::NextWake() const {
  if (recovering() && !stopping_) return 0;
  // Where nothing wakes at the end of a request (simulation), time has to.
  if (queue_.open() > 0 && queue_.disk().WaitFd() < 0) return clock_.Now() + kMillisecond / 10;
  if (HasDropsWaiting() && !degraded_) return clock_.Now() + kMillisecond;
  if (job_ == Job::kErasing || job_ == Job::kPlanning || (job_ == Job::kSearching && !copy_reading_) ||
      (job_ == Job::kCopying && copy_loaded_))
    return clock_.Now() + kMillisecond / 4;
  const bool jobs =
      job_ == Job::kLeaving || job_ == Job::kRemoving || !seal_queue_.empty() || !repair_queue_.empty();
  if (jobs && !stopping_) return std::max(maintain_at_, clock_.Now());
  return std::min(writer_->NextWake(), degraded_ && !probing_ ? retry_at_ : kNever);
}

void DiskLog::Stop() {
  EndCopy();
  stopping_ = true;
  writer_->Seal();
}

void DiskLog::Degrade(int error, const char* what) {
  ++counters_.write_errors;
  counters_.no_space_errors += error == ENOSPC;
  if (!degraded_) {
    ++counters_.degraded_times;
    Say(true, absl::StrCat("nvme is degraded: ", what, ": ", std::strerror(error),
                           "; parts stay in RAM alone until a write succeeds again"));
  }
  degraded_ = true;
  retry_at_ = clock_.Now() + retry_after_;
  retry_after_ = std::min(2 * retry_after_, kDegradedRetryMax);
}

// A small write to a free extent: when it is synced, the disk takes writes again.
void DiskLog::Probe() {
  for (const auto& [file, extent] : table_.all()) {
    if (extent.state != ExtentState::kFree) continue;
    probing_ = true;
    EncodeExtentHeader({.extent = file, .use = extent.use, .free = true}, probe_page_);
    WriteAndSync(file, 0, probe_page_, kPageBytes, [this](int error) {
      probing_ = false;
      if (error != 0) return Degrade(error, "probe");
      degraded_ = false;
      retry_after_ = kDegradedRetryMin;
      Say(false, "nvme takes writes again");
    });
    return;
  }
  degraded_ = false;  // None is free: the next one made or reclaimed is the probe.
}

void DiskLog::WriteAndSync(FileId file, uint32_t offset, std::byte* data, uint32_t bytes,
                           std::function<void(int)> done) {
  queue_.Submit(
      {.kind = DiskRequest::Kind::kWrite, .file = file, .offset = offset, .data = data, .bytes = bytes},
      [this, file, done = std::move(done)](int error) {
        if (error != 0) return done(error);
        queue_.Submit({.kind = DiskRequest::Kind::kSync, .file = file}, done);
      });
}

}  // namespace cistern
