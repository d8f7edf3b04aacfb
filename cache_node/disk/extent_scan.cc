#include "cache_node/disk/extent_scan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/crc32c.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint32_t kScanMemoryBytes = kRecordBytesMax + kScanReadBytes;
static_assert(kScanMemoryBytes >= FooterBytes(kEntriesPerExtentMax));

}  // namespace

absl::StatusOr<ExtentScan> ExtentScan::Create(uint32_t extent, ReadAt read) {
  CISTERN_ASSIGN_OR_RETURN(DiskMemory memory, DiskMemory::Create(kScanMemoryBytes));
  return ExtentScan(extent, std::move(read), std::move(memory));
}

void ExtentScan::Note(const char* kind, uint32_t offset, std::string what) {
  if (findings_.size() < kScanFindingsMax) findings_.push_back({kind, offset, std::move(what)});
}

// Bytes of the extent, read ahead where the memory has room.
absl::StatusOr<const std::byte*> ExtentScan::At(uint32_t offset, uint32_t bytes) {
  if (offset < begin_ || offset > end_) begin_ = end_ = offset;
  if (offset + bytes > end_) {
    std::memmove(memory_.data(), memory_.data() + (offset - begin_), end_ - offset);
    begin_ = offset;
    const uint32_t have = end_ - begin_;
    const uint32_t want =
        std::min({std::max(bytes - have, kScanReadBytes), kScanMemoryBytes - have, kExtentBytes - end_});
    CISTERN_RETURN_IF_ERROR(read_(end_, memory_.data() + have, want));
    end_ += want;
  }
  return memory_.data() + (offset - begin_);
}

absl::Status ExtentScan::ReadEnds() {
  CISTERN_RETURN_IF_ERROR(read_(0, memory_.data(), kPageBytes));
  const absl::StatusOr<ExtentHeader> header = DecodeExtentHeader(memory_.data());
  if (absl::IsFailedPrecondition(header.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("nvme extent ", extent_, ": ", std::string(header.status().message()),
                     "; start the version that wrote it, or empty the folder"));
  }
  header_good_ = header.ok() && header->extent == extent_;
  foreign_ = header.ok() && header->extent != extent_;
  blank_ = std::all_of(memory_.data(), memory_.data() + kPageBytes,
                       [](std::byte one) { return one == std::byte{0}; });
  if (header_good_) {
    use_ = header->use;
    free_ = header->free;
  }
  if (free_) return absl::OkStatus();
  CISTERN_RETURN_IF_ERROR(read_(kExtentBytes - kPageBytes, memory_.data(), kPageBytes));
  const absl::StatusOr<FooterTrailer> trailer = DecodeFooterTrailer(memory_.data());
  if (trailer.ok() && trailer->extent == extent_ && (!header_good_ || trailer->use == *use_)) {
    trailer_ = *trailer;
    use_ = trailer->use;
  }
  if (!header_good_) {
    const absl::StatusOr<ExtentHeader> again = DecodeExtentHeader(memory_.data());
    if (again.ok() && again->extent == extent_ && again->free) {
      use_ = again->use;
      free_ = true;
    }
    // The first record knows, too, which use this is: of one that is open yet, while the trailer is of the
    // use before.
    CISTERN_RETURN_IF_ERROR(read_(kPageBytes, memory_.data(), kPageBytes));
    const absl::StatusOr<RecordHeader> first = DecodeRecordHeader(memory_.data());
    if (first.ok() && first->extent == extent_ && first->page == 1 &&
        (!use_.has_value() || first->use.life > use_->life)) {
      trailer_.reset();
      free_ = false;
      use_ = first->use;
    }
    Note("extent_header", 0, header.ok() ? "names another extent" : std::string(header.status().message()));
  }
  return absl::OkStatus();
}

void ExtentScan::LookFor(const ExtentUse& use) {
  looked_for_ = true;
  used_before_ = known();
  use_ = use;
  free_ = false;
  trailer_.reset();
}

absl::StatusOr<bool> ExtentScan::StepEntries() {
  static_assert(kScanEntries * kFooterEntryBytes % kPageBytes == 0);
  const auto done = static_cast<uint32_t>(entries_.size());
  const uint32_t count = std::min(kScanEntries, trailer_->entries - done);
  const uint32_t bytes = RoundUpTo(count * kFooterEntryBytes, kPageBytes);
  const uint32_t at = kExtentBytes - FooterBytes(trailer_->entries) + done * kFooterEntryBytes;
  begin_ = end_ = 0;
  if (bytes > 0) CISTERN_RETURN_IF_ERROR(read_(at, memory_.data(), bytes));
  entries_crc_ = Crc32cExtend(entries_crc_, memory_.data(), bytes);
  absl::Status good = DecodeSomeEntries(*trailer_, memory_.data(), count, entries_);
  const bool all = done + count == trailer_->entries;
  if (all && entries_crc_ != trailer_->entries_crc) good = absl::DataLossError("footer entries: checksum");
  if (!good.ok()) {
    Note("footer", at, std::string(good.message()));
    trailer_.reset();
    entries_.clear();
    return true;
  }
  if (!all) return false;
  data_end_ = trailer_->data_end;
  records_ = trailer_->records;
  return true;
}

// Looks at one place; false at the end of the extent.
absl::StatusOr<bool> ExtentScan::OneRecord() {
  if (!use_.has_value() || at_ + kPageBytes > kExtentBytes - kPageBytes) return false;
  CISTERN_ASSIGN_OR_RETURN(const std::byte* const page, At(at_, kPageBytes));
  const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(page);
  if (!header.ok() || header->extent != extent_ || header->page != at_ / kPageBytes || header->use != *use_) {
    if (!gap_begin_.has_value()) gap_begin_ = at_;
    at_ += kPageBytes;
    return true;
  }
  const uint32_t record_bytes = header->RecordBytes();
  CISTERN_ASSIGN_OR_RETURN(const std::byte* const record, At(at_, record_bytes));
  const bool whole = PayloadIsWhole(*header, record + kPageBytes);
  if (!whole) {
    tail_.push_back({"payload", at_, "checksum"});
    if (header->kind != RecordKind::kBlock) AppendEntries(*header, tail_drops_);
  } else {
    if (gap_begin_.has_value())
      Note("record", *gap_begin_, absl::StrCat(at_ - *gap_begin_, " bytes are no record"));
    for (ScanFinding& finding : tail_) Note("payload", finding.offset, std::move(finding.what));
    tail_.clear();
    entries_.insert(entries_.end(), tail_drops_.begin(), tail_drops_.end());
    tail_drops_.clear();
    AppendEntries(*header, entries_);
    ++records_;
    data_end_ = at_ + record_bytes;
  }
  if (whole) gap_begin_.reset();
  at_ += record_bytes;
  return true;
}

absl::StatusOr<bool> ExtentScan::Step() {
  for (const uint32_t stop = at_ + kScanReadBytes; at_ < stop;) {
    CISTERN_ASSIGN_OR_RETURN(const bool more, OneRecord());
    if (more) continue;
    for (ScanFinding& finding : tail_) Note("torn_tail", finding.offset, std::move(finding.what));
    tail_.clear();
    return true;
  }
  return false;
}

absl::StatusOr<std::optional<RecordHeader>> ExtentScan::ReadRecord(uint32_t page, const std::byte** payload) {
  const uint32_t at = page * kPageBytes;
  CISTERN_ASSIGN_OR_RETURN(const std::byte* const first, At(at, kPageBytes));
  absl::StatusOr<RecordHeader> header = DecodeRecordHeader(first);
  if (!header.ok() || header->extent != extent_ || header->page != page || header->use != use()) {
    return std::optional<RecordHeader>();
  }
  CISTERN_ASSIGN_OR_RETURN(const std::byte* const record, At(at, header->RecordBytes()));
  *payload = record + kPageBytes;
  return std::optional<RecordHeader>(*std::move(header));
}

}  // namespace cistern
