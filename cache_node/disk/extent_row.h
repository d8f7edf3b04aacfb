#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache_node/disk/extent_scan.h"
#include "cache_node/disk/extent_table.h"
#include "cache_node/disk/record.h"

namespace cistern {

// What the manifest keeps of one extent, under ExtentRowKey: "sealed life=17 nonce=9f2c41d07b63e8a5
// data_end=66977792 records=3271". The extent itself is the truth of what is in it; the row tells whether it
// is still the extent that this log wrote.
struct ExtentRow {
  ExtentState state = ExtentState::kFree;
  uint64_t life = 0;
  std::optional<uint64_t> nonce;  // Rows of older releases have none.
  uint32_t data_end = 0;
  uint32_t records = 0;
};

std::string ExtentRowKey(FileId file);
// Empty for the manifest's other keys.
std::optional<FileId> ExtentOfRowKey(std::string_view key);
std::string EncodeExtentRow(const ExtentRow& row);
// Empty when it is none.
std::optional<ExtentRow> DecodeExtentRow(std::string_view text);

// What is in an extent's place, by its own pages.
struct FoundExtent {
  bool there = false;    // As long as an extent is.
  bool known = false;    // Some page says which use this is...
  bool foreign = false;  // ...or of which other number it is.
  bool header_good = false;
  bool free = false;
  ExtentUse use;
};

FoundExtent FoundIn(const ExtentScan& scan);

// The use that the row says is there, where no page at the extent's ends can be read of it or a later one:
// its records may lie behind them, and only a scan finds out. Empty where that is no question.
std::optional<ExtentUse> UseToLookFor(const std::optional<ExtentRow>& row, const FoundExtent& found);

// Whether a power cut tore the header with which another use began, and what else is there is of the use
// before: its records were wanted no more. What a use has on disk for sure came after its header. The last
// page of what was emptied says so itself; where that has an older release's trailer, the row has to.
bool IsStale(const std::optional<ExtentRow>& row, const FoundExtent& found);

// Whether the row says already that the extent is in that state of that use. Then that is on the disk for
// sure, since rows are told behind a sync; else what was found may be in a cache alone, left there by a kill
// between a write and its sync.
bool IsTold(const std::optional<ExtentRow>& row, ExtentState state, const ExtentUse& use);

// Of what is not stale: why what is there is not what the row is about; empty when it may be. The manifest
// may lag behind the extents by any number of changes, since it is told after them: so a later use than the
// row's is never wrong. It is told before in two places: that an extent is about to be used ("open"), and
// that a file is about to be removed ("free").
std::string_view WhyLost(const std::optional<ExtentRow>& row, const FoundExtent& found);

}  // namespace cistern
