// What leaves the index by name, by age or because nobody can name it, and how the log is told.
#include <algorithm>

#include "cache_node/disk/disk_log.h"
#include "core/crc32c.h"

namespace cistern {

// The block's parts for which goes(entry), in turns as of CoordsSeen::Walk.
template <typename Goes>
bool DiskLog::EraseParts(const BlockHash& hash, uint32_t& from, uint64_t& looks, uint64_t& erased,
                         Goes goes) {
  return coords_seen_.Walk(from, looks, [&](PartCoord coord) {
    const DiskEntry* entry = index_.Find(hash, coord);
    if (entry == nullptr || !goes(*entry)) return;
    EraseEntry(hash, coord, *entry);
    ++erased;
  });
}

uint64_t DiskLog::DropBlocks(absl::Span<const BlockHash> blocks) {
  const bool copying = writer_->is_copying() && !carried_.has_value();
  uint64_t dropped = 0, looks = UINT64_MAX;
  for (const BlockHash& hash : blocks) {
    bool any = recovering();  // An extent that is still to be scanned may have it.
    if (copying && hash == copied_.block.hash) any = copied_dropped_ = true;
    const uint64_t before = dropped;
    uint32_t from = 0;
    EraseParts(hash, from, looks, dropped, [](const DiskEntry&) { return true; });
    if (recovering()) dropped_[hash] = UINT64_MAX;
    if (any || dropped > before) drops_waiting_.push_back(hash);
  }
  return dropped;
}

uint64_t DiskLog::DropAll() {
  copied_dropped_ = true;
  const uint64_t dropped = index_.size();
  for (size_t piece = 0; piece < index_.pieces(); ++piece) {
    index_.EraseIfIn(piece, [&](const DiskEntry& entry) {
      Unaccount(entry);
      return true;
    });
  }
  for (size_t piece = 0; piece < tails_.pieces(); ++piece) tails_.ErasePiece(piece);
  if (recovering()) dropped_all_ = GenerationOf(next_life_, 0);
  drops_waiting_.clear();
  drop_all_waiting_ = true;
  return dropped;
}

// No record says so: the manifest's row is gone, and a part that has an end but no row has ended.
bool DiskLog::Expire(const BlockHash& hash, uint32_t& from, uint64_t& looks) {
  return EraseParts(hash, from, looks, counters_.expired_parts,
                    [](const DiskEntry& entry) { return (entry.retention & kRetentionTimed) != 0; });
}

// The entries of an extent whose list of them cannot be read, a piece of the index a turn. Until they are
// gone they are found, and their records say whether they still are what was asked for.
void DiskLog::EraseOn() {
  const uint64_t before = counters_.evicted_parts;
  index_.EraseIfIn(erased_, [&](const DiskEntry& entry) {
    if (entry.extent != job_file_) return false;
    Unaccount(entry);
    ++counters_.evicted_parts;
    return true;
  });
  if (counters_.evicted_parts > before) tails_.Doubt();
  if (++erased_ == index_.pieces()) job_ = Job::kCopying;  // Of nothing.
}

// Says on disk what is gone, so that no start brings it back. After a record that is being copied: that was
// begun before.
void DiskLog::AppendDrops() {
  if (!HasDropsWaiting() || degraded_ || writer_->is_copying()) return;
  RecordHeader header;
  std::vector<const std::byte*> data;
  bool damaged = false;
  if (drop_all_waiting_) {
    header.kind = RecordKind::kDropAll;
    drop_all_waiting_ = !writer_->Append(header, data, damaged);
    return;
  }
  header.kind = RecordKind::kDrop;
  const size_t count = std::min(drops_waiting_.size(), kDropsPerTurn);
  const auto* bytes =
      reinterpret_cast<const std::byte*>(drops_waiting_.data() + drops_waiting_.size() - count);
  const auto length = static_cast<uint32_t>(count * sizeof(BlockHash));
  header.parts.push_back({.coord = {}, .at = 0, .length = length, .crc = Crc32c(bytes, length)});
  data.push_back(bytes);
  if (!writer_->Append(header, data, damaged)) return;
  drops_waiting_.resize(drops_waiting_.size() - count);
}

}  // namespace cistern
