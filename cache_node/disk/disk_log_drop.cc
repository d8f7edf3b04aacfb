// What leaves the index by name, by age or because nobody can name it, and how the log is told.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_log.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

constexpr uint64_t kLooksOfAPiece = 64;               // That is empty, of those that a drop of all takes.
constexpr uint32_t kSearchBytesPerTurn = 256u << 10;  // Whose pages are looked at for records of drops.

}  // namespace

void DiskLog::NoteDrop(const BlockHash& hash) {
  if (recovering()) {  // An extent that is still to be scanned may have it.
    dropped_[hash] = UINT64_MAX;
    drop_tells_ = true;
  }
  if (counters_.unnamed_parts > 0) drop_tells_ = true;
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
  if (!std::exchange(drop_tells_, false)) return;
  drops_waiting_.push_back(hash);
  if (drops_waiting_.size() <= kDropsWaitingMax) return;
  drops_waiting_.clear();
  LoseDrops(GenerationOf(next_life_, 0),
            "more than kDropsWaitingMax drops wait for a disk that takes no writes");
}

uint64_t DiskLog::DropAll() {
  uint64_t looks = UINT64_MAX, dropped = 0;
  (void)DropAllOn(looks, dropped);
  EndDropAll();
  return dropped;
}

// The record that says so comes last, behind what reclaim still carries on meanwhile.
bool DiskLog::DropAllOn(uint64_t& looks, uint64_t& dropped) {
  if (!std::exchange(dropping_all_, true)) {
    copied_dropped_ = true;
    if (recovering()) dropped_all_ = GenerationOf(next_life_, 0);
    drop_piece_ = drop_tail_ = 0;
  }
  for (; drop_piece_ < index_.pieces(); ++drop_piece_) {
    if (looks == 0) return false;
    const uint64_t before = index_.size();
    index_.EraseIfIn(drop_piece_, [&](const DiskEntry& entry) {
      Unaccount(entry);
      return true;
    });
    dropped += before - index_.size();
    looks -= std::min(looks, kLooksOfAPiece + (before - index_.size()) / 4);
  }
  for (; drop_tail_ < tails_.pieces(); ++drop_tail_) {
    if (looks == 0) return false;
    tails_.ErasePiece(drop_tail_);
    looks -= std::min(looks, kLooksOfAPiece);
  }
  return true;
}

void DiskLog::EndDropAll() {
  hidden_ = false;
  if (!std::exchange(dropping_all_, false)) return;
  if (recovering()) dropped_all_ = GenerationOf(next_life_, 0);
  drops_waiting_.clear();
  drop_all_waiting_ = true;
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
  if (++erased_ < index_.pieces()) return;
  job_ = Job::kSearching;
  search_at_ = kPageBytes;
  drops_missing_ = table_.HasOlder(UseOf(job_file_).life) ? table_.Find(job_file_)->drops : 0;
}

// What such an extent drops stays dropped: its records of drops go on, as they do where it has its list.
// Their pages find them; what lies in other records is not looked at.
void DiskLog::SearchOn() {
  if (copy_reading_) return;
  const Extent& extent = *table_.Find(job_file_);
  if (drops_missing_ == 0 || search_at_ >= extent.data_end) {
    if (drops_missing_ > 0) LoseDrops(GenerationOf(extent.use.life, 0), kNotKept);
    job_ = Job::kCopying;
    return;
  }
  const uint32_t bytes = std::min(kSearchBytesPerTurn, extent.data_end - search_at_);
  copy_reading_ = true;
  Read(job_file_, search_at_, aux_, bytes, [this, bytes](int error) {
    copy_reading_ = false;
    if (error == 0) return SearchIn(aux_, bytes);
    search_at_ += bytes;
  });
}

void DiskLog::SearchIn(const std::byte* pages, uint32_t bytes) {
  const ExtentUse use = UseOf(job_file_);
  for (const uint32_t begin = search_at_; search_at_ < begin + bytes && drops_missing_ > 0;) {
    const absl::StatusOr<RecordHeader> header = DecodeRecordHeader(pages + (search_at_ - begin));
    const uint32_t page = search_at_ / kPageBytes;
    if (!header.ok() || header->extent != job_file_ || header->page != page || header->use != use) {
      search_at_ += kPageBytes;
      continue;
    }
    search_at_ += header->RecordBytes();
    if (header->kind == RecordKind::kBlock) continue;
    --drops_missing_;
    copies_.push_back({.page = page, .end = search_at_, .parts = {}});
    AppendEntries(*header, copies_.back().parts);
  }
}

// Memory knows what was dropped; the next start does not. So it takes nothing that is older.
void DiskLog::LoseDrops(uint64_t generation, std::string_view why) {
  ++counters_.lost_drops;
  gone_before_ = std::max(gone_before_, generation);
  Say(true,
      absl::StrCat("nvme: ", std::string(why),
                   "; so that nothing of what was dropped comes back, the next start does not take what "
                   "was stored before"));
}

void DiskLog::OnDropsDurable(const FooterEntry& record) {
  if (record.kind != RecordKind::kDrop || record.block.fingerprint != 0) return;
  drops_flying_.erase(drops_flying_.begin(),
                      drops_flying_.begin() + static_cast<ptrdiff_t>(record.length / sizeof(BlockHash)));
}

// With a write that failed. They are written again: in what they name nothing is found meanwhile.
void DiskLog::OnDropsLost(const FooterEntry& record) {
  if (record.kind == RecordKind::kDropAll) {
    if (record.block.fingerprint == 0) drop_all_waiting_ = true;
    gone_before_ = std::max(gone_before_, record.block.fingerprint);
  } else if (record.block.fingerprint != 0) {
    carry_again_ = true;
  } else {
    const auto end = drops_flying_.begin() + static_cast<ptrdiff_t>(record.length / sizeof(BlockHash));
    drops_waiting_.insert(drops_waiting_.begin(), drops_flying_.begin(), end);
    drops_flying_.erase(drops_flying_.begin(), end);
  }
}

// Says on disk what is gone, so that no start brings it back. After a record that is being copied: that was
// begun before.
void DiskLog::AppendDrops() {
  if (!HasDropsWaiting() || degraded_ || writer_->is_copying()) return;
  if (drop_all_waiting_ || gone_before_ != 0) return AppendDropOfAll();
  RecordHeader header;
  std::vector<const std::byte*> data;
  bool damaged = false;
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
  drops_flying_.insert(drops_flying_.end(), hashes.begin(), hashes.end());
}

// Of all there is, or of what is older than drops that were lost.
void DiskLog::AppendDropOfAll() {
  RecordHeader header;
  header.kind = RecordKind::kDropAll;
  if (!drop_all_waiting_) header.block.fingerprint = gone_before_;
  bool damaged = false;
  if (!writer_->Append(header, {}, damaged)) return;
  drop_all_waiting_ = false;
  gone_before_ = 0;
}

}  // namespace cistern
