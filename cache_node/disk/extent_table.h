#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cache_node/disk/record.h"

namespace cistern {

// An extent with fewer live bytes is worth emptying by copying all of them, whatever they are: starts and
// failed writes leave such extents behind.
inline constexpr uint64_t kSparseBytes = kExtentBytes / 4;
// Above its capacity, for a start that finds none free: one at a time, until there is room in the others.
// Several where one start after the other is killed before that: systemd gives up after five.
inline constexpr uint32_t kSpareExtentsMax = 6;
inline constexpr FileId kExtentsMax = 1u << 20;  // 64 TiB; files with greater numbers are none of ours.

enum class ExtentState : uint8_t {
  kFree,        // A file whose header says so, or a new one.
  kOpen,        // Takes records.
  kSealed,      // Full, or as full as it gets.
  kLeaving,     // Its wanted parts are being copied away.
  kUnreadable,  // I/O errors: left alone, with a gauge and a log line, until somebody looks at the disk.
};

struct Extent {
  ExtentState state = ExtentState::kFree;
  ExtentUse use;
  bool scanned = true;  // Its parts are in the index.
  bool footer = false;  // On disk; else `kept` has the entries.
  bool lost = false;    // Free, and its row in the manifest stays until it is used again.
  uint32_t entries = 0;
  uint32_t data_end = 0;
  uint32_t records = 0;
  uint32_t drops = 0;    // Those of them that say what is gone.
  uint32_t readers = 0;  // Reads under way.
  uint32_t live_parts = 0;
  uint64_t live_bytes = 0;
  std::vector<FooterEntry> kept;
};

// The extents of one log: which there are, what state each is in, which is next. Plain bookkeeping, no I/O.
// Owner: DiskLog. Thread: the shard's.
class ExtentTable {
 public:
  explicit ExtentTable(uint32_t capacity) : capacity_(capacity) {}

  Extent& Add(FileId file) { return extents_[file]; }
  void Remove(FileId file) { extents_.erase(file); }
  Extent* Find(FileId file);
  const std::map<FileId, Extent>& all() const { return extents_; }

  // The lowest number without a file, none while `capacity` files are there or being made; kSpareExtentsMax
  // more with `spare`.
  std::optional<FileId> NewFile(bool spare) const;
  std::optional<FileId> TakeFree();
  // As of the last Recount, and what was taken since: never too many.
  uint32_t free_count() const { return free_; }
  void Recount();
  uint32_t count() const { return static_cast<uint32_t>(extents_.size()); }
  uint32_t capacity() const { return capacity_; }
  // More are there than wanted: --nvme has become smaller.
  bool IsOverFull() const { return count() > capacity_; }
  // The next to leave: one that holds nothing any more, or else, if `must`, the emptiest below kSparseBytes,
  // or else the oldest. That one, too, where nothing can be copied: the emptiest may be the newest.
  std::optional<FileId> Victim(bool must, bool can_copy) const;
  // An extent older than this life holds records.
  bool HasOlder(uint64_t life) const;
  bool AllScanned() const;

 private:
  const uint32_t capacity_;
  uint32_t free_ = 0;
  std::map<FileId, Extent> extents_;
};

}  // namespace cistern
