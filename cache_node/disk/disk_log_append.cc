// Records into the log: whole, and in steps.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_log.h"
#include "core/check.h"

namespace cistern {

// While no new file can be made, reclaim's copies have first claim on what is left.
bool DiskLog::MayAppend(uint32_t record_bytes) const {
  const uint64_t ready = table_.free_count();
  if (table_.count() < table_.capacity()) return true;
  const uint64_t left = writer_->head_room() + ready * (kExtentBytes / 8 * 7);
  return left >= kCopyBytesMax + record_bytes;
}

// What no drop of its block would find may not be kept.
std::optional<DiskLog::Appended> DiskLog::Refuses(const RecordHeader& header, uint16_t layout) {
  if (degraded_ || stopping_) return Appended::kOff;
  const bool named = layout != kDiskLayoutsMax &&
                     std::all_of(header.parts.begin(), header.parts.end(),
                                 [&](const auto& part) { return coords_seen_.Add(part.coord.Packed()); });
  if (!named) {
    SayUnnamed();
    return Appended::kNoName;
  }
  if (!MayAppend(header.RecordBytes())) return Appended::kNoRoom;
  return std::nullopt;
}

DiskLog::Appended DiskLog::Append(RecordHeader& header, absl::Span<const std::byte* const> data) {
  EndCopy();
  const uint16_t layout = index_.LayoutNumber(header.layout);
  if (const std::optional<Appended> refused = Refuses(header, layout)) return *refused;
  bool damaged = false;
  if (!writer_->Append(header, data, damaged)) return damaged ? Appended::kDamaged : Appended::kNoRoom;
  EnterParts(header, layout);
  return Appended::kOk;
}

DiskLog::Appended DiskLog::Begin(RecordHeader header, std::vector<const std::byte*> data) {
  CISTERN_CHECK((!writer_->is_copying() || carried_.has_value()) && !copy_result_.has_value());
  const uint16_t layout = index_.LayoutNumber(header.layout);
  if (const std::optional<Appended> refused = Refuses(header, layout)) return *refused;
  callers_turn_ = carried_.has_value();
  AppendDrops();  // What is dropped and written again is dropped first.
  if (carried_.has_value() || reclaims_turn_ || HasDropsWaiting()) return Appended::kNoRoom;
  copied_ = std::move(header);
  copied_layout_ = layout;
  copied_dropped_ = false;
  return writer_->Begin(copied_, data) ? Appended::kOk : Appended::kNoRoom;
}

std::optional<DiskLog::Appended> DiskLog::Continue(uint64_t& budget) {
  if (copy_result_.has_value()) return std::exchange(copy_result_, std::nullopt);
  switch (writer_->Step(budget)) {
    case ExtentWriter::Copied::kMore:
      return std::nullopt;
    case ExtentWriter::Copied::kDamaged:
      return Appended::kDamaged;
    case ExtentWriter::Copied::kLost:
      return Appended::kOff;
    case ExtentWriter::Copied::kDone:
      if (!copied_dropped_) EnterParts(copied_, copied_layout_);
      return Appended::kOk;
  }
  return std::nullopt;
}

void DiskLog::EndCopy() {
  uint64_t budget = UINT64_MAX;
  if (carried_.has_value()) {
    (void)CarryOn(budget);
  } else if (writer_->is_copying()) {
    copy_result_ = Continue(budget);
  }
}

void DiskLog::EnterParts(const RecordHeader& header, uint16_t layout) {
  for (const RecordHeader::Part& part : header.parts) {
    DiskEntry entry;
    entry.fingerprint = DiskEntry::Fold(header.block.fingerprint);
    entry.SetPlace(header.extent, header.page, (header.page + 1) * kPageBytes + part.at);
    entry.length = part.length & ((1u << 23) - 1);
    entry.layout = layout & 0xfff;
    entry.retention = header.retention & 7;
    SetEntry(header.block.hash, part.coord, entry, header.tail);
    counters_.appended_bytes += part.length;
  }
}

}  // namespace cistern
