#include "cache_node/disk/extent_table.h"

#include <algorithm>

namespace cistern {

Extent* ExtentTable::Find(FileId file) {
  const auto it = extents_.find(file);
  return it == extents_.end() ? nullptr : &it->second;
}

std::optional<FileId> ExtentTable::NewFile(bool spare) const {
  if (count() >= capacity_ + (spare ? kSpareExtentsMax : 0)) return std::nullopt;
  FileId file = 0;
  for (const auto& [there, extent] : extents_) {
    if (there != file) break;
    ++file;
  }
  return file < kExtentsMax ? std::optional<FileId>(file) : std::nullopt;
}

std::optional<FileId> ExtentTable::TakeFree() {
  for (auto& [file, extent] : extents_) {
    if (extent.state != ExtentState::kFree) continue;
    extent.state = ExtentState::kOpen;
    free_ -= free_ > 0;
    return file;
  }
  return std::nullopt;
}

void ExtentTable::Recount() {
  free_ = static_cast<uint32_t>(std::count_if(extents_.begin(), extents_.end(), [](const auto& row) {
    return row.second.state == ExtentState::kFree;
  }));
}

std::optional<FileId> ExtentTable::Victim(bool must, bool can_copy) const {
  std::optional<FileId> oldest, emptiest;
  uint64_t life = UINT64_MAX, live = kSparseBytes;
  for (const auto& [file, extent] : extents_) {
    if (extent.state != ExtentState::kSealed || !extent.scanned) continue;
    if (extent.live_parts == 0 && !(extent.drops > 0 && HasOlder(extent.use.life))) return file;
    if (can_copy && extent.live_bytes < live) {
      emptiest = file;
      live = extent.live_bytes;
    }
    if (extent.use.life < life) {
      oldest = file;
      life = extent.use.life;
    }
  }
  if (!must) return std::nullopt;
  return emptiest.has_value() ? emptiest : oldest;
}

bool ExtentTable::HasOlder(uint64_t life) const {
  return std::any_of(extents_.begin(), extents_.end(), [life](const auto& row) {
    return row.second.state != ExtentState::kFree && row.second.use.life < life;
  });
}

bool ExtentTable::AllScanned() const {
  return std::all_of(extents_.begin(), extents_.end(), [](const auto& row) { return row.second.scanned; });
}

}  // namespace cistern
