#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache_node/disk/disk_memory.h"
#include "cache_node/disk/record.h"

namespace cistern {

inline constexpr uint32_t kScanReadBytes = 1u << 20;  // Of one step, if records allow.
inline constexpr uint32_t kScanEntries = 4096;        // Of a footer, in one step.
inline constexpr size_t kScanFindingsMax = 1024;      // Kept of one extent.

// Something wrong in an extent. kind: "extent_header", "footer", "record", "payload", "torn_tail".
struct ScanFinding {
  std::string kind;
  uint32_t offset = 0;
  std::string what;
};

// Finds out what an extent holds, from its own pages alone: by the footer where there is a good one, else
// record by record, each one's bytes against their CRC. Used by a node's start and by fsck. One read is asked
// for at a time and waited for. An I/O error is an error, never the end of the log (F38).
class ExtentScan {
 public:
  using ReadAt = std::function<absl::Status(uint32_t offset, std::byte* data, uint32_t bytes)>;

  static absl::StatusOr<ExtentScan> Create(uint32_t extent, ReadAt read);

  // Header and footer's trailer, in whose place an emptied extent has its header once more: what use this is,
  // whether it is free or sealed.
  absl::Status ReadEnds();
  // It is of that use, which neither header nor first record can tell: Step finds what there is of it.
  void LookFor(const ExtentUse& use);
  // The footer's entries, about kScanEntries more of them; true once all are there, and have their checksum.
  // On damage sealed() turns false: go on with Step.
  absl::StatusOr<bool> StepEntries();
  // Scans on, about kScanReadBytes; true once the whole extent was seen. After ReadEnds.
  absl::StatusOr<bool> Step();

  bool header_good() const { return header_good_; }
  bool blank() const { return blank_; }      // Its first page is all zeros: it was never written.
  bool foreign() const { return foreign_; }  // Its header is good, and of another number.
  bool free() const { return free_; }
  bool looked_for() const { return looked_for_; }
  bool used_before() const { return used_before_; }  // Looked for where another use is known.
  bool sealed() const { return trailer_.has_value(); }
  bool known() const { return use_.has_value(); }  // Some page says which use this is.
  ExtentUse use() const { return use_.value_or(ExtentUse{}); }
  const std::optional<FooterTrailer>& trailer() const { return trailer_; }

  // By StepEntries, or by Step so far. Of records that are not whole only those of drops are there, where
  // they are not in the torn tail: whoever asks has to know that something was dropped.
  const std::vector<FooterEntry>& entries() const { return entries_; }
  std::vector<FooterEntry> TakeEntries() { return std::move(entries_); }
  uint32_t data_end() const { return data_end_; }
  uint32_t records() const { return records_; }
  const std::vector<ScanFinding>& findings() const { return findings_; }
  // Reads one record whole; null when it is not there as the entry says.
  absl::StatusOr<std::optional<RecordHeader>> ReadRecord(uint32_t page, const std::byte** payload);

 private:
  ExtentScan(uint32_t extent, ReadAt read, DiskMemory memory)
      : extent_(extent), read_(std::move(read)), memory_(std::move(memory)) {}
  absl::StatusOr<const std::byte*> At(uint32_t offset, uint32_t bytes);
  void Note(const char* kind, uint32_t offset, std::string what);
  absl::StatusOr<bool> OneRecord();

  uint32_t extent_;
  ReadAt read_;
  DiskMemory memory_;  // Holds [begin_, end_) of the extent.
  uint32_t begin_ = 0, end_ = 0;
  bool header_good_ = false;
  bool blank_ = false;
  bool foreign_ = false;
  bool free_ = false;
  bool looked_for_ = false, used_before_ = false;
  std::optional<ExtentUse> use_;
  std::optional<FooterTrailer> trailer_;
  std::vector<FooterEntry> entries_;
  uint32_t entries_crc_ = 0;  // Of the footer's pages so far.
  uint32_t data_end_ = kPageBytes;
  uint32_t records_ = 0;
  uint32_t at_ = kPageBytes;             // Next page to look at.
  std::optional<uint32_t> gap_begin_;    // Pages since there were no record.
  std::vector<ScanFinding> tail_;        // Found behind the last good record,
  std::vector<FooterEntry> tail_drops_;  // and damaged records of drops among it.
  std::vector<ScanFinding> findings_;
};

}  // namespace cistern
