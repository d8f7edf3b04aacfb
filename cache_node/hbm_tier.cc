#include "cache_node/hbm_tier.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cache_node/disk/disk_tier.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/status_macros.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<HbmTier>> HbmTier::Create(HbmTierOptions options,
                                                         std::unique_ptr<DeviceArena> device, Clock& clock,
                                                         Random& random) {
  if (options.bytes < SlabPool::SlabBytes(options.bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("hbm of ", options.bytes,
                                                   " bytes is too little: a shard needs ",
                                                   SlabPool::SlabBytes(options.bytes) >> 20, " MiB"));
  }
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion region,
                           MemoryRegion::Create("cistern-hbm", SlabPool::RegionBytes(options.bytes), true));
  std::unique_ptr<HbmTier> made(new HbmTier(std::move(options), std::move(device), clock, std::move(region)));
  made->tier_ =
      std::make_unique<RamTier>(made->region_, made->options_.bytes, "lru", random, made->tier_counters_);
  made->tier_->SetEvictionHook([tier = made.get()](auto what) { tier->Evicting(what); });
  return made;
}

HbmTier::HbmTier(HbmTierOptions options, std::unique_ptr<DeviceArena> device, Clock& clock,
                 MemoryRegion region)
    : options_(std::move(options)),
      clock_(clock),
      device_(std::move(device)),
      region_(std::move(region)),
      check_(kHbmCheckBytesPerTurn),
      budget_bytes_(static_cast<double>(options_.move_bytes_per_s)),
      budget_at_(clock.Now()) {}

// Copies under way still read and write the RAM's slots: the device ends them first.
HbmTier::~HbmTier() {
  device_.reset();
  if (tier_ != nullptr) tier_->SetEvictionHook(nullptr);
}

void HbmTier::Attach(RamTier& ram, DiskTier* disk) {
  ram_ = &ram;
  disk_ = disk;
}

BlockHash HbmTier::HashOf(const SlotTrailer& trailer) {
  BlockHash hash;
  std::memcpy(hash.bytes.data(), trailer.hash, hash.bytes.size());
  return hash;
}

PartKey HbmTier::KeyOf(const SlotTrailer& trailer) {
  return {.block = {.hash = HashOf(trailer), .fingerprint = trailer.fingerprint},
          .coord = PartCoord::Unpack(trailer.coord)};
}

PartResult HbmTier::Judge(const BlockKey& block, PartCoord coord, const LayoutId& layout,
                          uint32_t part_bytes) {
  const SlotId slot = tier_->Find(block.hash, coord);
  if (slot == kNoSlot) return PartResult::kMiss;
  tier_->AdvanceTo(Tick());
  return tier_->Judge(slot, block.fingerprint, tier_->FindLayout(layout), part_bytes);
}

HolderId HbmTier::HolderLike(RamTier& from, SlotId from_slot, RamTier& to) {
  const HolderTable::Holder& holder = from.HolderOf(from_slot);
  if (holder.tenant == 0 && holder.retention.IsPlain()) return 0;
  const TenantIndex tenant = to.holders().TenantNamed(from.holders().tenants()[holder.tenant].name);
  return to.holders().Number(tenant == kNoTenant ? TenantIndex{0} : tenant, holder.retention);
}

void HbmTier::CopyRetention(RamTier& from, SlotId from_slot, RamTier& to, SlotId to_slot) {
  if (from.record(from_slot).expires != 0) to.SetExpiry(to_slot, from.record(from_slot).expires);
}

void HbmTier::Used(SlotId ram_slot) {
  const SlotTrailer& trailer = ram_->trailer(ram_slot);
  const SlotId here = tier_->Find(HashOf(trailer), PartCoord::Unpack(trailer.coord));
  if (here != kNoSlot) {
    tier_->Touch(here, Tick());
    return CopyRetention(*ram_, ram_slot, *tier_, here);
  }
  if (ram_->record(ram_slot).tail != 0) return;  // Tails are whole or nothing: they stay below.
  if (closed_) return;
  if (promotions_.size() >= kPromotionsMax) {
    ++counters_.dropped_promotions;
  } else {
    promotions_.emplace_back(HashOf(trailer), PartCoord::Unpack(trailer.coord));
  }
}

// --- bandwidth

bool HbmTier::TakeBudget(uint64_t bytes) {
  const Nanos now = clock_.Now();
  const auto a_second = static_cast<double>(options_.move_bytes_per_s);
  budget_bytes_ = std::min(budget_bytes_ + a_second * static_cast<double>(now - budget_at_) / 1e9, a_second);
  budget_at_ = now;
  if (budget_bytes_ < static_cast<double>(bytes)) return false;
  budget_bytes_ -= static_cast<double>(bytes);
  return true;
}

void HbmTier::Spend(uint64_t bytes) { budget_bytes_ -= static_cast<double>(bytes); }

// --- up

void HbmTier::Close(bool closed) {
  closed_ = closed;
  promotions_.clear();
}

void HbmTier::PumpUp() {
  while (!promotions_.empty() && HasCopyFree() && up_bytes_ < kHbmUpBytesMax) {
    const auto [block, coord] = promotions_.front();
    const SlotId ram = ram_->Find(block, coord);
    SlotId hbm = kNoSlot;
    if (ram != kNoSlot && !ram_->IsExpired(ram_->record(ram)) && tier_->Find(block, coord) == kNoSlot) {
      const uint32_t length = ram_->record(ram).length;
      if (!TakeBudget(length)) return;
      const HolderId holder = HolderLike(*ram_, ram, *tier_);
      // The lease first: room on the device may be made by moving a part down, which takes from RAM.
      if (holder != kNoHolder && ram_->TryLease(ram) &&
          tier_->Reserve(length, Tick(), hbm, holder) != PartResult::kOk) {
        ram_->Unlease(ram);
        hbm = kNoSlot;
      }
    }
    promotions_.pop_front();
    if (hbm == kNoSlot) continue;
    const uint32_t length = ram_->record(ram).length;
    const uint64_t copy = device_->CopyIn(tier_->Offset(hbm), ram_->data(ram), length);
    if (copy == 0) {
      ++counters_.device_errors;
      tier_->Abandon(hbm);
      ram_->Unlease(ram);
      continue;
    }
    up_bytes_ += length;
    copies_[copy] = {.direction = Direction::kUp, .ram = ram, .hbm = hbm};
  }
}

// crc: of what stands on the device now, compared before anybody can find it there.
bool HbmTier::FinishUp(const Copy& copy, uint32_t crc) {
  const SlotRecord& record = ram_->record(copy.ram);
  if (closed_ || record.state() != SlotState::kVisible) return false;  // Dropped meanwhile (F04).
  const SlotTrailer& trailer = ram_->trailer(copy.ram);
  if (crc != trailer.crc) {
    ++counters_.corrupt_parts;
    return false;
  }
  const PartResult published = tier_->Publish(copy.hbm, KeyOf(trailer), ram_->LayoutOf(copy.ram),
                                              record.length, trailer.crc, 0, Tick());
  if (published != PartResult::kOk) return true;  // It has freed the slot.
  CopyRetention(*ram_, copy.ram, *tier_, copy.hbm);
  ++counters_.promoted_parts;
  counters_.promoted_bytes += record.length;
  return true;
}

// --- down

void HbmTier::Want(uint64_t group, const BlockHash& block, PartCoord coord) {
  const SlotId slot = tier_->Find(block, coord);
  if (slot == kNoSlot || !tier_->TryLease(slot)) return;
  groups_.Add(group);
  wanted_.emplace_back(group, slot);
}

void HbmTier::PumpDown() {
  while (!wanted_.empty() && HasCopyFree()) {
    const auto [group, hbm] = wanted_.front();
    wanted_.pop_front();
    const SlotRecord& record = tier_->record(hbm);
    const PartKey key = KeyOf(tier_->trailer(hbm));
    SlotId ram = ram_->Find(key.block.hash, key.coord);
    uint64_t copy = 0;
    if (ram == kNoSlot && record.state() == SlotState::kVisible) {
      const HolderId holder = HolderLike(*tier_, hbm, *ram_);
      if (holder != kNoHolder) (void)ram_->Reserve(record.length, Tick(), ram, holder, ComesFrom::kOtherTier);
      if (ram != kNoSlot) copy = device_->CopyOut(tier_->Offset(hbm), ram_->data(ram), record.length);
      if (ram != kNoSlot && copy == 0) {
        ++counters_.device_errors;
        ram_->Abandon(ram);
        ram = kNoSlot;
      }
    }
    if (copy == 0) {
      EndWant(group, ram);
      tier_->Unlease(hbm);
      continue;
    }
    Spend(record.length);
    copies_[copy] = {.direction = Direction::kDown, .ram = ram, .hbm = hbm, .group = group};
  }
}

SlotId HbmTier::FinishDown(const Copy& copy, uint32_t crc) {
  const SlotRecord& record = tier_->record(copy.hbm);
  const SlotTrailer& trailer = tier_->trailer(copy.hbm);
  if (crc != trailer.crc) {
    ++counters_.corrupt_parts;
    ram_->Abandon(copy.ram);
    if (record.state() == SlotState::kVisible) tier_->Drop(copy.hbm);
    return kNoSlot;
  }
  if (record.state() != SlotState::kVisible) return ram_->Abandon(copy.ram), kNoSlot;  // Dropped (F04).
  const PartKey key = KeyOf(trailer);
  const PartResult published =
      ram_->Publish(copy.ram, key, tier_->LayoutOf(copy.hbm), record.length, trailer.crc, 0, Tick());
  if (published != PartResult::kOk) return ram_->Find(key.block.hash, key.coord);
  CopyRetention(*tier_, copy.hbm, *ram_, copy.ram);
  ++counters_.staged_parts;
  counters_.staged_bytes += record.length;
  return copy.ram;
}

void HbmTier::EndWant(uint64_t id, SlotId ram_slot) {
  if (ram_slot == kNoSlot) ++counters_.stage_failed_parts;
  groups_.End(id, ram_slot != kNoSlot && ram_->TryLease(ram_slot) ? ram_slot : kNoSlot);
}

// The device makes room: the last chance for a part that neither RAM nor the disk has.
void HbmTier::Demote(SlotId slot) {
  const SlotRecord& record = tier_->record(slot);
  const SlotTrailer& trailer = tier_->trailer(slot);
  const PartKey key = KeyOf(trailer);
  const LayoutId& layout = tier_->LayoutOf(slot);
  if (tier_->IsExpired(record) || ram_->Find(key.block.hash, key.coord) != kNoSlot) return;
  if (disk_ != nullptr && disk_->Judge(key.block, key.coord, layout, record.length) == PartResult::kOk)
    return;
  SlotId ram = kNoSlot;
  const HolderId holder = HolderLike(*tier_, slot, *ram_);
  if (!TakeBudget(record.length) || holder == kNoHolder ||
      ram_->Reserve(record.length, Tick(), ram, holder) != PartResult::kOk) {
    ++counters_.dropped_demotions;
    return;
  }
  const bool read = device_->ReadNow(tier_->Offset(slot), ram_->data(ram), record.length);
  const bool whole = read && Crc32c(ram_->data(ram), record.length) == trailer.crc;
  counters_.device_errors += !read;
  counters_.corrupt_parts += read && !whole;
  if (!whole) return ram_->Abandon(ram);
  if (ram_->Publish(ram, key, layout, record.length, trailer.crc, 0, Tick()) != PartResult::kOk) return;
  CopyRetention(*tier_, slot, *ram_, ram);
  ++counters_.demoted_parts;
}

// --- life

// Checks a turn's worth of what has moved: read back from the device, or as it lies in RAM.
bool HbmTier::CheckOn() {
  uint32_t left = kHbmCheckBytesPerTurn;
  while (!checks_.empty() && left > 0) {
    Check& check = checks_.front();
    const bool up = check.copy.direction == Direction::kUp;
    const uint32_t length = up ? ram_->record(check.copy.ram).length : tier_->record(check.copy.hbm).length;
    const uint32_t now = std::min(length - check.at, left);
    const bool read = !up || device_->ReadNow(tier_->Offset(check.copy.hbm) + check.at, check_.data(), now);
    const std::byte* bytes = up ? check_.data() : ram_->data(check.copy.ram) + check.at;
    if (read) check.crc = Crc32cExtend(check.crc, bytes, now);
    check.at += now;
    left -= now;
    if (read && check.at < length) break;
    const Check ended = check;
    checks_.pop_front();
    Finish(ended, read);
  }
  return left < kHbmCheckBytesPerTurn;
}

void HbmTier::Finish(const Check& check, bool ok) {
  const Copy& copy = check.copy;
  if (!ok) ++counters_.device_errors;
  if (copy.direction == Direction::kUp) {
    up_bytes_ -= ram_->record(copy.ram).length;
    if (!ok || !FinishUp(copy, check.crc)) tier_->Abandon(copy.hbm);
    ram_->Unlease(copy.ram);
    return;
  }
  SlotId ram = kNoSlot;
  if (ok) {
    ram = FinishDown(copy, check.crc);
  } else {
    ram_->Abandon(copy.ram);
  }
  EndWant(copy.group, ram);
  tier_->Unlease(copy.hbm);
}

bool HbmTier::Poll() {
  tier_->AdvanceTo(Tick());
  done_.clear();
  bool any = device_->Poll(done_);
  for (const DeviceCopyDone& one : done_) {
    const auto it = copies_.find(one.copy);
    CISTERN_CHECK(it != copies_.end());
    const Check check{.copy = it->second};
    copies_.erase(it);
    one.ok ? checks_.push_back(check) : Finish(check, false);
  }
  any |= CheckOn();
  PumpDown();
  PumpUp();
  return any || groups_.HasReady();
}

Nanos HbmTier::NextWake() const {
  if (groups_.HasReady() || !copies_.empty() || !checks_.empty() || !wanted_.empty()) return 0;
  return promotions_.empty() ? kNever : clock_.Now() + kMillisecond;
}

void HbmTier::AddStats(NodeStats& stats) const {
  stats.tiers.push_back({.tier = "hbm",
                         .used_bytes = tier_->used_bytes(),
                         .capacity_bytes = tier_->capacity_bytes(),
                         .parts = tier_->parts(),
                         .device = device_->Describe()});
  auto& out = stats.counters;
  out["hbm_promoted_parts_total"] = counters_.promoted_parts;
  out["hbm_promoted_bytes_total"] = counters_.promoted_bytes;
  out["hbm_demoted_parts_total"] = counters_.demoted_parts;
  out["hbm_staged_parts_total"] = counters_.staged_parts;
  out["hbm_staged_bytes_total"] = counters_.staged_bytes;
  out["hbm_stage_failed_parts_total"] = counters_.stage_failed_parts;
  out["hbm_dropped_promotions_total"] = counters_.dropped_promotions;
  out["hbm_dropped_demotions_total"] = counters_.dropped_demotions;
  out["hbm_corrupt_parts_total"] = counters_.corrupt_parts;
  out["hbm_device_errors_total"] = counters_.device_errors;
  out["hbm_evicted_parts_total"] = tier_counters_.evicted_parts;
  out["hbm_metadata_bytes"] = tier_->metadata_bytes();
}

}  // namespace cistern
