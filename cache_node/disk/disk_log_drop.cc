// What leaves the index by name, by age or because nobody can name it, and how the log is told.
#include <algorithm>
#include <utility>

#include "cache_node/disk/disk_log.h"
#include "core/crc32c.h"

namespace cistern {

void DiskLog::NoteDrop(const BlockHash& hash) {
  if (recovering()) {  // An extent that is still to be scanned may have it.
    dropped_[hash] = UINT64_MAX;
    drop_tells_ = true;
  }
  if (writer_->is_copying() && !carried_.has_value() && hash == copied_.block.hash)
    drop_tells_ = copied_dropped_ = true;
}

bool DiskLog::DropPart(const BlockHash& hash, PartCoord coord) {
  NoteDrop(hash);
  const DiskEntry* entry = index_.Find(hash, coord);
  if (entry == nullptr) return false;
  EraseEntry(hash, coord, *entry);
  return drop_tells_ = true;
}

// The record comes behind all that was still written of the block meanwhile.
void DiskLog::EndDrop(const BlockHash& hash) {
  NoteDrop(hash);
  if (std::exchange(drop_tells_, false)) drops_waiting_.push_back(hash);
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
bool DiskLog::Expire(const BlockHash& hash, uint64_t& from, uint64_t& looks) {
  for (; looks > 0; --looks) {
    const uint64_t next = coords_seen_.Next(from);
    if (next == CoordsSeen::kNone) return true;
    from = next + 1;
    const PartCoord coord = PartCoord::Unpack(static_cast<uint32_t>(next));
    const DiskEntry* entry = index_.Find(hash, coord);
    if (entry == nullptr || (entry->retention & kRetentionTimed) == 0) continue;
    EraseEntry(hash, coord, *entry);
    ++counters_.expired_parts;
  }
  return false;
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
  const std::vector<BlockHash> hashes(drops_waiting_.begin(),
                                      drops_waiting_.begin() + static_cast<ptrdiff_t>(count));
  const auto* bytes = reinterpret_cast<const std::byte*>(hashes.data());
  const auto length = static_cast<uint32_t>(count * sizeof(BlockHash));
  header.parts.push_back({.coord = {}, .at = 0, .length = length, .crc = Crc32c(bytes, length)});
  data.push_back(bytes);
  if (!writer_->Append(header, data, damaged)) return;
  drops_waiting_.erase(drops_waiting_.begin(), drops_waiting_.begin() + static_cast<ptrdiff_t>(count));
}

}  // namespace cistern
