// Times to live and pins of what is on disk.
#include <algorithm>

#include "cache_node/disk/disk_tier.h"

namespace cistern {
namespace {

constexpr Nanos kSweepEvery = kSecond;
constexpr Nanos kSweepOnAfter = 5 * kMillisecond;  // Where there is more than one turn may do.
constexpr uint64_t kEndsPerTurn = 128;             // Looked at in the book; a change of the manifest each.
constexpr uint64_t kExpiryLooksPerTurn = 1024;     // Of the index.

Nanos TicksToNanos(int32_t ticks) { return Nanos{ticks} << 23; }  // RamTier::TickOf.

}  // namespace

// The wall clock as it was at the start, moved on by the clock that no one sets.
uint32_t DiskTier::UnixNow() const {
  return static_cast<uint32_t>(std::clamp<int64_t>(unix_base_ + clock_.Now() / kSecond, 0, UINT32_MAX));
}

// When a visible part in RAM that has a time to live ends, rounded up: never before its time.
uint32_t DiskTier::UnixEndOf(SlotId slot) const {
  const auto ticks = static_cast<int32_t>(ram_->record(slot).expires - RamTier::TickOf(clock_.Now()));
  const Nanos left = std::max<Nanos>(TicksToNanos(ticks), 0);
  return UnixNow() + static_cast<uint32_t>((left + kSecond - 1) / kSecond) + (left > 0 ? 1 : 0);
}

bool DiskTier::WriteEnd(SlotId slot) {
  const Retention& retention = ram_->HolderOf(slot).retention;
  return book_->Set(
      HashOf(slot),
      {.expires_unix_s = UnixEndOf(slot), .ttl_s = retention.ttl_s, .sliding = retention.sliding});
}

void DiskTier::Touched(SlotId slot) {
  if (ram_->HolderOf(slot).retention.sliding) book_->Slide(HashOf(slot), UnixEndOf(slot));
}

void DiskTier::Retain(const BlockHash& block, const Retention& retention) {
  const RetentionBook::Row* row = book_->Find(block);
  if (row == nullptr || retention.ttl_s == 0) return;
  const uint32_t end = UnixNow() + retention.ttl_s;
  if (end <= row->expires_unix_s) return;
  book_->Set(block, {.expires_unix_s = end, .ttl_s = retention.ttl_s, .sliding = retention.sliding});
}

// How a part that comes back from disk is held in RAM; false: its time has ended. The log does not know
// tenants: who asks for it is charged.
bool DiskTier::HolderFor(const BlockHash& block, uint16_t flags, TenantIndex tenant, HolderId& holder) const {
  Retention retention{.pin = PinOf(flags)};
  if ((flags & kRetentionTimed) != 0) {
    const RetentionBook::Row* row = book_->Find(block);
    if (row == nullptr || row->expires_unix_s <= UnixNow()) return false;
    retention.ttl_s = row->ttl_s;
    retention.sliding = row->sliding;
  }
  holder = ram_->holders().Number(tenant, retention);
  return holder != kNoHolder;
}

// A part came back: what was left of its time goes on; a sliding one begins anew with this use.
void DiskTier::SetEnd(SlotId slot, uint32_t tick) {
  const Retention& retention = ram_->HolderOf(slot).retention;
  if (retention.ttl_s == 0) return;
  if (retention.sliding) return Touched(slot);
  const RetentionBook::Row* row = book_->Find(HashOf(slot));
  const uint32_t left = row == nullptr ? 0 : row->expires_unix_s - std::min(row->expires_unix_s, UnixNow());
  ram_->SetExpiry(slot, tick + RamTier::TickOf(Nanos{left} * kSecond));
}

void DiskTier::SweepExpired() {
  if ((book_->size() == 0 && !expiring_.has_value()) || clock_.Now() < sweep_at_) return;
  uint64_t ends = kEndsPerTurn, looks = kExpiryLooksPerTurn;
  while (expiring_.has_value() || (expiring_ = book_->TakeExpired(UnixNow(), ends)).has_value()) {
    const bool anew = book_->Find(*expiring_) != nullptr;  // Stored since: what is there belongs to that.
    if (!anew && !log_->Expire(*expiring_, expiring_from_, looks)) break;
    expiring_.reset();
    expiring_from_ = 0;
  }
  sweep_at_ = clock_.Now() + (ends == 0 || looks == 0 ? kSweepOnAfter : kSweepEvery);
}

}  // namespace cistern
