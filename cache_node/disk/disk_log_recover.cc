// A start of the log: which extents there are, and what they hold.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_log.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

std::optional<ExtentRow> RowOf(const ManifestValues& values, FileId file) {
  const auto at = values.find(ExtentRowKey(file));
  return at == values.end() ? std::nullopt : DecodeExtentRow(at->second);
}

// Numbers that no log comes to are none of ours.
void TakeLife(uint64_t seen, uint64_t& life) {
  if (seen < UINT64_MAX / 2) life = std::max(life, seen);
}

absl::StatusOr<ExtentScan> ScanOf(Disk& disk, FileId file) {
  return ExtentScan::Create(file, [&disk, file](uint32_t offset, std::byte* data, uint32_t bytes) {
    return disk.ReadNow(file, offset, data, bytes);
  });
}

}  // namespace

// Whether what is there is not what the manifest told of; then it is counted and said.
bool DiskLog::IsLost(FileId file, const std::optional<ExtentRow>& row, const FoundExtent& found) {
  const std::string_view why = WhyLost(row, found);
  if (why.empty()) return false;
  ++counters_.lost_extents;
  SayDamage(file, 0, absl::StrCat(std::string(why), " (the manifest: ", EncodeExtentRow(*row), ")"));
  return true;
}

absl::Status DiskLog::ReadEnds(FileId file, uint64_t& life) {
  const std::optional<ExtentRow> row = RowOf(manifest_.loaded(), file);
  Extent& extent = table_.Add(file);
  CISTERN_ASSIGN_OR_RETURN(ExtentScan scan, ScanOf(queue_.disk(), file));
  absl::Status read = scan.ReadEnds();
  if (absl::IsOutOfRange(read)) {
    table_.Remove(file);
    if (!IsLost(file, row, {})) {  // A create that a crash cut short: not one record was ever in it.
      Say(true, absl::StrCat("nvme extent ", file, " is shorter than an extent, and removed"));
    }
    queue_.Submit({.kind = DiskRequest::Kind::kRemove, .file = file}, [](int) {});
    return absl::OkStatus();
  }
  if (absl::IsFailedPrecondition(read)) return read;  // A newer version's: its parts are not ours to lose.
  if (!read.ok()) {
    MarkUnreadable(file, read);
    return absl::OkStatus();
  }
  TakeLife(scan.use().life, life);
  const FoundExtent found = FoundIn(scan);
  const std::optional<ExtentUse> begun = UseToLookFor(row, found);
  if (!begun.has_value() && IsStale(row, found)) {
    extent.use = found.use;
    if (row.has_value() && row->life > found.use.life)
      extent.use = {.life = row->life, .nonce = row->nonce.value_or(0)};
    FreeUnbegun(file);
    return absl::OkStatus();
  }
  extent.lost = !begun.has_value() && IsLost(file, row, found);
  if (extent.lost) return absl::OkStatus();  // Nothing of it is indexed, and it is free.
  extent.use = begun.value_or(scan.use());
  if (scan.free() && !begun.has_value()) {
    if (!IsTold(row, ExtentState::kFree, extent.use)) FreeAgain(file);
    return absl::OkStatus();
  }
  if (!scan.known() && !begun.has_value())
    return absl::OkStatus();  // Nothing was ever written to it, or nothing can be told of it.
  extent.state = ExtentState::kSealed;
  extent.scanned = false;
  scan_queue_.push_back(file);
  return absl::OkStatus();
}

// Not one record of its use is there.
void DiskLog::FreeUnbegun(FileId file) {
  Say(false, absl::StrCat("nvme extent ", file, ": its use was cut short at its header; it is free"));
  FreeAgain(file);
}

void DiskLog::FreeAgain(FileId file) {
  Extent& extent = *table_.Find(file);
  extent.state = ExtentState::kLeaving;
  extent.scanned = true;
  repair_queue_.push_back(file);
}

absl::Status DiskLog::ReadAllEnds() {
  CISTERN_ASSIGN_OR_RETURN(const std::vector<FileId> files, queue_.disk().List());
  uint64_t life = 0;
  for (const auto& [key, value] : manifest_.loaded()) {
    const std::optional<FileId> file = ExtentOfRowKey(key);
    const std::optional<ExtentRow> row = file.has_value() ? DecodeExtentRow(value) : std::nullopt;
    if (!row.has_value()) continue;
    TakeLife(row->life, life);
    if (!std::binary_search(files.begin(), files.end(), *file)) IsLost(*file, row, {});
  }
  for (const FileId file : files) {
    if (file < kExtentsMax) CISTERN_RETURN_IF_ERROR(ReadEnds(file, life));
  }
  next_life_ = life + kLifeStep;
  std::sort(scan_queue_.begin(), scan_queue_.end(),
            [this](FileId a, FileId b) { return table_.Find(a)->use.life < table_.Find(b)->use.life; });
  return absl::OkStatus();
}

// Rows of extents that hold something stay as they are until it is known what.
void DiskLog::OpenLog() {
  manifest_.Put("settings", absl::StrCat("format=", kDiskFormatVersion, " extent_bytes=", kExtentBytes));
  for (const auto& [file, extent] : table_.all()) {
    if (extent.state == ExtentState::kFree && !extent.lost) Record(file, extent);
  }
  for (const auto& [key, value] : manifest_.loaded()) {
    const std::optional<FileId> file = ExtentOfRowKey(key);
    if (file.has_value() && table_.Find(*file) == nullptr) manifest_.Delete(key);
  }
}

void DiskLog::MarkUnreadable(FileId file, const absl::Status& why) {
  Extent& extent = *table_.Find(file);
  extent.state = ExtentState::kUnreadable;
  extent.scanned = true;
  ++counters_.read_errors;
  Say(true, absl::StrCat("nvme extent ", file, " cannot be read: ", std::string(why.message()),
                         "; its parts are misses, and it is left as it is"));
}

void DiskLog::SayDamage(FileId file, uint32_t offset, std::string_view what) {
  const Nanos now = clock_.Now();
  SayDamageLeftOut(now);
  if (now >= damage_until_) {
    damage_until_ = now + kDamageLinesEvery;
    damage_lines_ = 0;
  }
  if (damage_lines_ >= kDamageLinesMax) {
    ++damage_left_out_;
    return;
  }
  ++damage_lines_;
  Say(true, absl::StrCat("nvme extent ", file, " at ", offset, " is damaged: ", std::string(what),
                         "; what it held is a miss; `cistern fsck` of the data folder names every place"));
}

void DiskLog::SayDamageLeftOut(Nanos now) {
  if (damage_left_out_ == 0 || now < damage_until_) return;
  Say(true, absl::StrCat("nvme: ", damage_left_out_,
                         " more places are damaged; `cistern fsck` of the data folder names every place"));
  damage_left_out_ = 0;
}

void DiskLog::CountFindings(FileId file, const std::vector<ScanFinding>& findings) {
  for (const ScanFinding& finding : findings) {
    counters_.corrupt_headers += finding.kind == "extent_header" || finding.kind == "record";
    counters_.corrupt_footers += finding.kind == "footer";
    counters_.corrupt_payloads += finding.kind == "payload";
    counters_.torn_tails += finding.kind == "torn_tail";
    if (finding.kind != "torn_tail")
      SayDamage(file, finding.offset, absl::StrCat(finding.kind, ": ", finding.what));
  }
  if (!findings.empty() && findings.back().kind == "torn_tail")
    Say(false,
        absl::StrCat("nvme extent ", file, " at ", findings.back().offset, ": a torn tail is cut off"));
}

// One piece of a start's work: some of a footer, about a megabyte of records, or entries into the index.
bool DiskLog::RecoverStep() {
  const FileId file = scan_queue_.back();
  if (taking_ != Taking::kNothing) {
    if (!TakeOn()) return true;
    Taken();
  } else {
    const absl::StatusOr<bool> done = ScanOn();
    if (!done.ok()) {
      MarkUnreadable(file, done.status());
    } else if (!*done) {
      return true;
    } else if (scan_->looked_for() && scan_->records() == 0) {
      FoundNothing(file, *scan_);
    } else {
      BeginTaking();
      return true;
    }
  }
  scan_.reset();
  scan_queue_.pop_back();
  if (scan_queue_.empty()) {
    Say(false, absl::StrCat("nvme: ", counters_.recovered_parts, " parts in ", counters_.scanned_extents,
                            " extents are indexed"));
  }
  return true;
}

// True: it is known what the extent holds.
absl::StatusOr<bool> DiskLog::ScanOn() {
  const FileId file = scan_queue_.back();
  if (scan_ == nullptr) {
    CISTERN_ASSIGN_OR_RETURN(ExtentScan scan, ScanOf(queue_.disk(), file));
    scan_ = std::make_unique<ExtentScan>(std::move(scan));
    CISTERN_RETURN_IF_ERROR(scan_->ReadEnds());
    if (const ExtentUse use = UseOf(file); scan_->use() != use) scan_->LookFor(use);
    return false;
  }
  if (!scan_->sealed()) return scan_->Step();
  CISTERN_ASSIGN_OR_RETURN(const bool all, scan_->StepEntries());
  return all && scan_->sealed();  // Else record by record, from the next turn on.
}

// Not one record of the use that was begun there is whole. Over zeros, or over another use, a header that
// does not read is what a power cut leaves; anything else is told.
void DiskLog::FoundNothing(FileId file, const ExtentScan& scan) {
  Extent& extent = *table_.Find(file);
  if (const auto row = RowOf(manifest_.loaded(), file); row->state == ExtentState::kSealed) {
    extent = Extent{};
    extent.lost = IsLost(file, row, {.there = true, .use = {}});
    return;
  }
  if ((!scan.blank() && !scan.used_before()) || scan.findings().size() > 1)
    CountFindings(file, scan.findings());
  if (!scan.blank()) return FreeUnbegun(file);
  extent.state = ExtentState::kFree;
  extent.scanned = true;
  Record(file, extent);
}

void DiskLog::BeginTaking() {
  const FileId file = scan_queue_.back();
  Extent& extent = *table_.Find(file);
  CountFindings(file, scan_->findings());
  extent.footer = scan_->sealed();
  extent.data_end = scan_->data_end();
  extent.records = scan_->records();
  extent.entries = static_cast<uint32_t>(scan_->entries().size());
  ++counters_.scanned_extents;
  taking_ = Taking::kDrops;
  take_at_ = hash_at_ = 0;
}

// Takes kEntriesPerTurn entries; true: those were the last. What is found is served meanwhile.
bool DiskLog::TakeOn() {
  const FileId file = scan_queue_.back();
  const std::vector<FooterEntry>& entries = scan_->entries();
  for (; take_at_ < entries.size(); ++take_at_) {
    if (taken_in_turn_ >= kEntriesPerTurn) return false;
    ++taken_in_turn_;
    const FooterEntry& entry = entries[take_at_];
    const bool part = entry.kind == RecordKind::kBlock;
    // Deepest parts were written first; the last of a key counts.
    if (taking_ == Taking::kParts && part) TakeEntry(file, UseOf(file), entry);
    if (taking_ == Taking::kDrops && !part && !TakeDropsAt(entry)) return false;
  }
  if (std::exchange(taking_, Taking::kParts) == Taking::kParts) return true;
  take_at_ = 0;
  return false;
}

// False: there are more hashes in it.
bool DiskLog::TakeDropsAt(const FooterEntry& entry) {
  const FileId file = scan_queue_.back();
  Extent& extent = *table_.Find(file);
  const std::byte* payload = nullptr;
  const auto record = scan_->ReadRecord(entry.page, &payload);
  if (record.ok() && record->has_value() && PayloadIsWhole(**record, payload)) {
    if (!ApplyDrop(entry, extent.use, payload)) return false;
  } else {
    ++counters_.corrupt_payloads;
    SayDamage(file, entry.page * kPageBytes, "a record of drops");
    TakeNothingBefore(file, WhatItDrops(entry, extent.use));
  }
  ++extent.drops;
  hash_at_ = 0;
  return true;
}

void DiskLog::Taken() {
  const FileId file = scan_queue_.back();
  Extent& extent = *table_.Find(file);
  taking_ = Taking::kNothing;
  extent.scanned = true;
  if (!scan_->header_good()) repair_queue_.push_back(file);
  if (scan_->sealed() && IsTold(RowOf(manifest_.loaded(), file), ExtentState::kSealed, extent.use)) return;
  seal_queue_.push_back(file);
  if (scan_->sealed()) return;  // Its row says so once that is synced.
  extent.kept = scan_->TakeEntries();
  Record(file, extent);
}

// A record of drops cannot be read: any of the older parts may be what it names.
void DiskLog::TakeNothingBefore(FileId file, uint64_t generation) {
  ++counters_.lost_drops;
  dropped_all_ = std::max(dropped_all_, generation);
  Say(true, absl::StrCat("nvme extent ", file,
                         ": a record of drops is lost; so that nothing it named comes "
                         "back, what was stored before it is a miss"));
}

// From hash_at_ on, a turn's worth; false: there are more.
bool DiskLog::ApplyDrop(const FooterEntry& entry, const ExtentUse& use, const std::byte* payload) {
  const uint64_t generation = WhatItDrops(entry, use);
  if (entry.kind == RecordKind::kDropAll) {
    dropped_all_ = std::max(dropped_all_, generation);
    return true;
  }
  for (; hash_at_ < entry.length / sizeof(BlockHash); ++hash_at_, ++taken_in_turn_) {
    if (taken_in_turn_ >= kEntriesPerTurn) return false;
    BlockHash hash;
    std::memcpy(hash.bytes.data(), payload + hash_at_ * sizeof(BlockHash), sizeof(BlockHash));
    uint64_t& known = dropped_[hash];
    known = std::max(known, generation);
  }
  return true;
}

// Once: the counters tell the rest.
void DiskLog::SayUnnamed() {
  if (std::exchange(said_unnamed_, true)) return;
  Say(true, absl::StrCat("nvme: ", kDiskLayoutsMax, " layouts (kDiskLayoutsMax) or ", kCoordsSeenMax,
                         " coordinates (kCoordsSeenMax) are known; parts of others are not kept on disk "
                         "(offload_dropped_names_total, nvme_unnamed_parts_total)"));
}

void DiskLog::TakeEntry(FileId file, const ExtentUse& use, const FooterEntry& place) {
  const uint64_t generation = GenerationOf(use.life, place.page);
  if (generation < dropped_all_) return;
  if (const uint64_t* dropped = dropped_.Find(place.block.hash); dropped != nullptr && generation < *dropped)
    return;
  if (const DiskEntry* there = index_.Find(place.block.hash, place.coord); there != nullptr) {
    if (GenerationOf(UseOf(there->extent).life, there->page) >= generation) return;
  }
  const uint16_t layout = index_.LayoutNumber(place.layout);
  if (layout == kDiskLayoutsMax || !coords_seen_.Add(place.coord.Packed())) {
    // It stays where it is, not found, and drops are written down from here on whatever they find.
    ++counters_.unnamed_parts;
    return SayUnnamed();
  }
  DiskEntry entry;
  entry.fingerprint = DiskEntry::Fold(place.block.fingerprint);
  entry.SetPlace(file, place.page, place.data_at);
  entry.length = place.length;
  entry.layout = layout;
  entry.durable = true;
  entry.retention = KnownRetention(place.retention);
  SetEntry(place.block.hash, place.coord, entry, place.tail);
  ++counters_.recovered_parts;
}

}  // namespace cistern
