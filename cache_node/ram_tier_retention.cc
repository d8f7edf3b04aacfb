// How long parts stay: times to live, pins, quotas.
#include "cache_node/ram_tier.h"
#include "core/check.h"

namespace cistern {
namespace {

// Hard pins may hold so much of the RAM; more would leave nothing to cache in.
constexpr uint64_t kPinnedShareMax = 2;  // 1 / 2.
// Own parts that are let go for one reservation: the largest part for the smallest ones.
constexpr int kOwnVictimsMax = kPartBytesMax / kSlotStrideMin;
// Slots that one reservation looks at for a part of a tenant's own which the policy has not found.
constexpr uint32_t kOwnSlotsLookedAt = 65536;
// Rounds of looking for a victim behind parts that may not go; each looks at kVictimScanMax.
constexpr int kVictimRoundsMax = 16;

static_assert(kPartBytesMax <= kLengthMask && kHoldersMax - 1 <= kHolderMask);

// From a tick on. The moment it counts from and the time itself are both rounded down to ticks: with two more
// a part lives as long as was promised, and at most two ticks (17 ms) longer.
uint32_t TicksOf(uint32_t ttl_s) { return RamTier::TickOf(Nanos{ttl_s} * kSecond) + 2; }

}  // namespace

void RamTier::NoteExpired(const BlockHash& block) {
  expired_.Add(block.Prefix64());
  evicted_.Forget(block.Prefix64());
}

void RamTier::Expire(SlotId slot) {
  NoteExpired(HashOf(pool_.trailer(slot)));
  const uint64_t dropped = counters_.dropped_parts;
  Remove(slot, /*evicted=*/false);
  counters_.expired_parts += counters_.dropped_parts - dropped;
  counters_.dropped_parts = dropped;
}

// A part becomes visible: from now on its holding counts.
void RamTier::BeginHolding(SlotId slot, uint32_t tick) {
  SlotRecord& record = pool_.record(slot);
  const Retention& retention = HolderOf(slot).retention;
  record.expires = 0;
  if (retention.ttl_s > 0) {
    SetExpiry(slot, tick + TicksOf(retention.ttl_s));
    ++timed_parts_;
  }
  if (retention.pin != PinKind::kNone) ++pool_.slab_of(slot).pinned;
  soft_pinned_ += retention.pin == PinKind::kSoft;
}

void RamTier::EndHolding(SlotId slot) {
  SlotRecord& record = pool_.record(slot);
  const Retention& retention = HolderOf(slot).retention;
  timed_parts_ -= retention.ttl_s > 0;
  if (retention.pin != PinKind::kNone) --pool_.slab_of(slot).pinned;
  soft_pinned_ -= retention.pin == PinKind::kSoft;
  holders_.Uncharge(static_cast<HolderId>(record.holder), record.length);
  record.holder = 0;
}

void RamTier::Slide(SlotId slot, uint32_t tick) {
  const Retention& retention = HolderOf(slot).retention;
  if (retention.sliding) SetExpiry(slot, tick + TicksOf(retention.ttl_s));
}

// Whether a tenant may have so much more; `charged_already` of it is its own by now.
bool RamTier::MayCharge(HolderId holder, uint32_t bytes, uint32_t charged_already) {
  const Tenant& tenant = holders_.TenantOf(holder);
  const uint64_t quota = tenant.limits.quota_bytes;
  const uint64_t used = tenant.used_bytes - charged_already;
  if (holders_.holder(holder).retention.pin == PinKind::kHard) {
    uint64_t pinned = bytes;
    for (const Tenant& one : holders_.tenants()) pinned += one.pinned_bytes;
    if (pinned > pool_.capacity_bytes() / kPinnedShareMax) {
      ++counters_.pins_refused;
      return false;
    }
  }
  return quota == 0 || used + bytes <= quota;
}

bool RamTier::Retain(SlotId slot, HolderId holder) {
  SlotRecord& record = pool_.record(slot);
  const Retention old = HolderOf(slot).retention;
  const Retention& wanted = holders_.holder(holder).retention;
  const uint32_t left = record.expires - now_tick_;
  const bool longer = old.ttl_s > 0 && (wanted.ttl_s == 0 || TicksOf(wanted.ttl_s) >= left);
  if (!longer && wanted.pin <= old.pin) return true;
  // Who pinned it hard has been promised that it stays; a longer wish that holds it less waits for that end.
  if (old.pin == PinKind::kHard && wanted.pin != PinKind::kHard) return false;
  const uint32_t length = record.length;
  const bool same = holders_.holder(holder).tenant == HolderOf(slot).tenant;
  if (!MayCharge(holder, length, same ? length : 0)) return false;
  holders_.Charge(holder, length);  // First: a number without parts may be given to another.
  EndHolding(slot);
  record.holder = holder & kHolderMask;
  BeginHolding(slot, now_tick_);
  return true;
}

void RamTier::SweepExpired(uint32_t slots) {
  for (; slots > 0 && timed_parts_ > 0; --slots) {
    if (sweep_slab_ >= pool_.slab_count()) sweep_slab_ = sweep_slot_ = 0;
    const Slab& slab = pool_.slab(sweep_slab_);
    if (slab.size_class == kNoClass || sweep_slot_ >= slab.touched) {
      ++sweep_slab_;
      sweep_slot_ = 0;
      continue;
    }
    const SlotId slot = sweep_slab_ << kSlotIndexBits | sweep_slot_++;
    const SlotRecord& record = pool_.record(slot);
    if (record.state() == SlotState::kVisible && IsExpired(record)) Expire(slot);
  }
}

bool RamTier::MayEvict(SlotId slot, bool soft_pins) const {
  const SlotRecord& record = pool_.record(slot);
  if (record.leases != 0 || record.state() != SlotState::kVisible) return false;
  if (IsExpired(record)) return true;
  // Most parts, by far: nobody's in particular.
  if (record.holder == 0 && holders_.tenants()[0].limits.floor_bytes == 0) return true;
  const HolderTable::Holder& holder = HolderOf(slot);
  if (holder.retention.pin == PinKind::kHard) return false;
  if (holder.retention.pin == PinKind::kSoft && !soft_pins) return false;
  const Tenant& tenant = holders_.tenants()[holder.tenant];
  return tenant.limits.floor_bytes == 0 || tenant.used_bytes - record.length >= tenant.limits.floor_bytes;
}

// Parts that may not go would pile up where the policy looks first, and hide those that may: they are moved
// on, as if they had been used.
SlotId RamTier::VictimOf(ClassId size_class, bool soft_pins) {
  EvictionPolicy& policy = *classes_[size_class].policy;
  for (int round = 0; round < kVictimRoundsMax; ++round) {
    passed_over_.clear();
    const auto id = policy.Victim([this, size_class, soft_pins](EntryId entry) {
      const SlotId slot = pool_.SlotOf(size_class, entry);
      if (MayEvict(slot, soft_pins)) return true;
      if (pool_.record(slot).leases == 0) passed_over_.push_back(entry);
      return false;
    });
    for (const EntryId entry : passed_over_) policy.Refresh(entry);
    if (id.has_value()) return pool_.SlotOf(size_class, *id);
    if (passed_over_.empty()) return kNoSlot;
  }
  return kNoSlot;
}

// Whether all of a slab may go without taking from a tenant what is left to it.
bool RamTier::FloorsAllow(uint32_t slab_index) {
  if (!holders_.HasFloors()) return true;
  const Slab& slab = pool_.slab(slab_index);
  std::array<uint64_t, kTenantsMax> bytes{};
  for (uint32_t i = 0; i < slab.touched; ++i) {
    const SlotId slot = slab_index << kSlotIndexBits | i;
    const SlotRecord& record = pool_.record(slot);
    if (record.state() != SlotState::kVisible || IsExpired(record)) continue;
    bytes[HolderOf(slot).tenant] += record.length;
  }
  for (size_t i = 0; i < holders_.tenants().size(); ++i) {
    const Tenant& tenant = holders_.tenants()[i];
    if (bytes[i] != 0 && tenant.used_bytes < tenant.limits.floor_bytes + bytes[i]) return false;
  }
  return true;
}

// A part of this tenant that may go: the policy's choice among those of the size, else any.
SlotId RamTier::OwnVictim(TenantIndex tenant, ClassId size_class) {
  const auto mine = [this, tenant](SlotId slot) {
    const SlotRecord& record = pool_.record(slot);
    return record.leases == 0 && record.state() == SlotState::kVisible && HolderOf(slot).tenant == tenant &&
           (HolderOf(slot).retention.pin == PinKind::kNone || IsExpired(record));
  };
  const auto id = classes_[size_class].policy->Victim(
      [&](EntryId entry) { return mine(pool_.SlotOf(size_class, entry)); });
  if (id.has_value()) return pool_.SlotOf(size_class, *id);
  uint32_t slabs = pool_.slab_count();
  for (uint32_t looked_at = 0; slabs > 0 && looked_at < kOwnSlotsLookedAt; --slabs) {
    own_slab_ = own_slab_ + 1 < pool_.slab_count() ? own_slab_ + 1 : 0;
    const Slab& slab = pool_.slab(own_slab_);
    if (slab.size_class == kNoClass) continue;
    for (uint32_t i = 0; i < slab.touched; ++i, ++looked_at) {
      if (mine(own_slab_ << kSlotIndexBits | i)) return own_slab_ << kSlotIndexBits | i;
    }
  }
  return kNoSlot;
}

bool RamTier::MakeQuotaRoom(HolderId holder, uint32_t bytes, ClassId size_class, ComesFrom from) {
  const TenantIndex index = holders_.holder(holder).tenant;
  for (int i = 0; !MayCharge(holder, bytes, 0); ++i) {
    Tenant& tenant = holders_.tenant(index);
    const bool over = tenant.limits.quota_bytes != 0 && tenant.used_bytes + bytes > tenant.limits.quota_bytes;
    const bool may_evict = tenant.limits.when_full == WhenFull::kEvictOwn || from == ComesFrom::kOtherTier;
    const SlotId victim = over && may_evict && i < kOwnVictimsMax ? OwnVictim(index, size_class) : kNoSlot;
    if (victim == kNoSlot) {
      ++tenant.rejected_parts;
      tenant.rejected_bytes += bytes;
      ++counters_.quota_rejected_parts;
      return false;
    }
    Remove(victim, /*evicted=*/true);
  }
  return true;
}

}  // namespace cistern
