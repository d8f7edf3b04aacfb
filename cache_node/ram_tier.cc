#include "cache_node/ram_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace cistern {
namespace {

constexpr uint32_t kNoSlab = UINT32_MAX;

}  // namespace

RamTier::RamTier(MemoryRegion& region, uint64_t ram_bytes, std::string policy, Random& random,
                 NodeCounters& counters)
    : counters_(counters),
      policy_name_(std::move(policy)),
      pool_(region, ram_bytes),
      index_(pool_, random),
      tails_(random) {
  classes_.resize(kSizeClassesMax);
}

absl::Status RamTier::CheckPolicy(const std::string& policy) {
  return MakeEvictionPolicy(policy, 1).status();
}

PartResult RamTier::Judge(SlotId slot, uint64_t fingerprint, LayoutIndex layout, uint32_t part_bytes) {
  if (IsExpired(pool_.record(slot))) {
    NoteExpired(HashOf(pool_.trailer(slot)));
    return PartResult::kMiss;
  }
  if (pool_.trailer(slot).fingerprint != fingerprint) {
    ++counters_.collisions_rejected;
    return PartResult::kMiss;
  }
  const SlotRecord& record = pool_.record(slot);
  if (record.layout != layout || record.length != part_bytes) {
    ++counters_.layout_mismatches;
    return PartResult::kLayout;
  }
  return PartResult::kOk;
}

bool RamTier::TryLease(SlotId slot) {
  SlotRecord& record = pool_.record(slot);
  if (record.leases == UINT16_MAX) return false;
  if (record.leases++ == 0) {
    Slab& slab = pool_.slab_of(slot);
    ++slab.busy;
    ++leased_parts_;
    pinned_bytes_ += record.length;
    ++classes_[slab.size_class].leased_visible;
  }
  return true;
}

void RamTier::Unlease(SlotId slot) {
  SlotRecord& record = pool_.record(slot);
  CISTERN_CHECK(record.leases > 0);
  if (--record.leases != 0) return;
  --leased_parts_;
  pinned_bytes_ -= record.length;
  if (record.state() == SlotState::kDoomed) {
    --doomed_parts_;
    pool_.Free(slot);
    return;
  }
  Slab& slab = pool_.slab_of(slot);
  --slab.busy;
  --classes_[slab.size_class].leased_visible;
}

void RamTier::SetTick(SlotId slot, uint32_t tick) {
  SlotRecord& record = pool_.record(slot);
  pool_.slab_of(slot).tick_sum += uint64_t{tick} - record.tick;
  record.tick = tick;
}

UseId RamTier::BeginUse(uint32_t part_bytes, absl::Span<const SlotId> here,
                        absl::Span<const uint64_t> missing, uint32_t tick, bool to_store) {
  if (part_bytes < kPartBytesMin || part_bytes > kPartBytesMax) return 0;
  // Who only asks makes no size of slots.
  const ClassId size_class = to_store ? pool_.ClassFor(part_bytes) : pool_.FindClass(part_bytes);
  if (size_class == kNoClass) return 0;
  entries_here_.clear();
  for (const SlotId slot : here) entries_here_.push_back(pool_.PolicyId(slot));
  const UseId use =
      StateOf(size_class).policy->Begin({.tick = tick, .here = entries_here_, .missing = missing});
  if (!missing.empty()) lacks_[missing[0] % kUsesMax] = {missing[0], use, part_bytes};
  return use;
}

UseId RamTier::UseThatLacked(uint32_t part_bytes, uint64_t key) const {
  const Lack& lack = lacks_[key % kUsesMax];
  return lack.key == key && lack.part_bytes == part_bytes ? lack.use : 0;
}

uint64_t RamTier::PolicyKeyOf(SlotId slot) const {
  const SlotTrailer& trailer = pool_.trailer(slot);
  return PolicyKey(HashOf(trailer), PartCoord::Unpack(trailer.coord));
}

void RamTier::Touch(SlotId slot, uint32_t tick, UseId use, uint32_t depth) {
  const SlotRecord& record = pool_.record(slot);
  if (record.state() != SlotState::kVisible) return;  // Dropped while leased.
  if (record.goes_first != 0) ClearFirst(slot);
  SetTick(slot, tick);
  if (record.expires != 0) Slide(slot, tick);
  classes_[pool_.slab_of(slot).size_class].policy->Touch(use, pool_.PolicyId(slot), depth);
}

void RamTier::Refresh(SlotId slot, uint32_t tick) {
  const SlotRecord& record = pool_.record(slot);
  // What goes first has been told of after the plan began.
  if (record.state() != SlotState::kVisible || record.goes_first != 0) return;
  SetTick(slot, tick);
  if (record.expires != 0) Slide(slot, tick);
  classes_[pool_.slab_of(slot).size_class].policy->Refresh(pool_.PolicyId(slot));
}

RamTier::ClassState& RamTier::StateOf(ClassId size_class) {
  ClassState& state = classes_[size_class];
  if (state.stride != pool_.stride(size_class)) {
    CISTERN_CHECK(state.visible == 0);
    // Room for the whole arena in this size; what is never used is never touched.
    auto policy = MakeEvictionPolicy(policy_name_, pool_.slots_per_slab(size_class) * pool_.slab_count());
    CISTERN_CHECK(policy.ok());
    state = ClassState{.policy = *std::move(policy), .stride = pool_.stride(size_class)};
  }
  return state;
}

PartResult RamTier::Reserve(uint32_t part_bytes, uint32_t tick, SlotId& slot, HolderId holder,
                            ComesFrom from) {
  if (part_bytes < kPartBytesMin) return PartResult::kInvalid;
  if (part_bytes > kPartBytesMax) return PartResult::kTooLarge;
  const ClassId size_class = pool_.ClassFor(part_bytes);
  if (size_class == kNoClass) return PartResult::kBusy;
  StateOf(size_class);
  if (!MakeQuotaRoom(holder, part_bytes, size_class, from)) return PartResult::kNoSpace;
  slot = pool_.TryTake(size_class);
  if (slot == kNoSlot) slot = MakeRoom(size_class, tick);
  if (slot == kNoSlot) {
    ++counters_.no_space;
    return PartResult::kNoSpace;
  }
  ++writing_parts_;
  SlotRecord& record = pool_.record(slot);
  record.length = part_bytes & kLengthMask;
  record.holder = holder & kHolderMask;
  holders_.Charge(holder, part_bytes);
  SetTick(slot, tick);
  return PartResult::kOk;
}

SlotId RamTier::MakeRoom(ClassId size_class, uint32_t tick) {
  ClassState& state = classes_[size_class];
  if (const SlotId first = TakeFirst(state); first != kNoSlot) {
    Remove(first, /*evicted=*/true);
    if (const SlotId slot = pool_.TryTake(size_class); slot != kNoSlot) return slot;
  }
  SlotId victim = kNoSlot;
  if (state.visible > state.leased_visible) {  // Else every candidate would be refused: do not look (F16).
    // With a tier below, what leaves RAM is demoted: a soft pin allows that.
    victim = VictimOf(size_class, /*soft_pins=*/eviction_hook_ != nullptr);
    if (victim == kNoSlot && soft_pinned_ > 0) victim = VictimOf(size_class, /*soft_pins=*/true);
  }
  const uint32_t other = ColdestOtherSlab(size_class, victim == kNoSlot);
  if (other != kNoSlab) {
    const Slab& slab = pool_.slab(other);
    // Colder on average than what would go otherwise, so that sizes share the RAM by use.
    const uint64_t mean_age = tick - slab.tick_sum / slab.used;
    if (victim == kNoSlot || mean_age > tick - pool_.record(victim).tick) {
      EmptySlab(other);
      return pool_.TryTake(size_class);
    }
  }
  if (victim == kNoSlot) return kNoSlot;
  Remove(victim, /*evicted=*/true);
  return pool_.TryTake(size_class);
}

void RamTier::NextToGo(ClassId size_class, absl::FunctionRef<bool(SlotId)> visit) const {
  if (classes_[size_class].policy == nullptr) return;
  classes_[size_class].policy->Next([&](EntryId entry) { return visit(pool_.SlotOf(size_class, entry)); });
}

uint32_t RamTier::ColdestOtherSlab(ClassId size_class, bool look_at_all) {
  if (pool_.class_slabs(size_class) == pool_.slab_count()) return kNoSlab;
  uint32_t best = kNoSlab;
  uint64_t best_tick = UINT64_MAX;
  const uint32_t count = look_at_all ? pool_.slab_count() : std::min(pool_.slab_count(), kSlabsLookedAt);
  for (uint32_t i = 0; i < count; ++i) {
    slab_hand_ = slab_hand_ + 1 < pool_.slab_count() ? slab_hand_ + 1 : 0;
    const Slab& slab = pool_.slab(slab_hand_);
    if (slab.size_class == kNoClass || slab.size_class == size_class || slab.busy + slab.pinned != 0)
      continue;
    if (pool_.SlotsIn(slab_hand_, size_class) == 0) continue;  // The short last one.
    const uint64_t mean = slab.tick_sum / slab.used;
    if (mean < best_tick && FloorsAllow(slab_hand_)) {
      best_tick = mean;
      best = slab_hand_;
    }
  }
  return best;
}

void RamTier::EmptySlab(uint32_t slab_index) {
  Slab& slab = pool_.slab(slab_index);
  CISTERN_CHECK(slab.busy == 0);
  const uint32_t touched = slab.touched;
  for (uint32_t i = 0; i < touched && slab.size_class != kNoClass; ++i) {
    const SlotId slot = slab_index << kSlotIndexBits | i;
    if (pool_.record(slot).state() != SlotState::kVisible) continue;
    ++counters_.slab_evicted_parts;
    Remove(slot, /*evicted=*/true);
  }
  ++counters_.slabs_moved;
}

void RamTier::RemoveOne(SlotId slot, bool evicted) {
  SlotRecord& record = pool_.record(slot);
  if (record.goes_first != 0) ClearFirst(slot);
  Slab& slab = pool_.slab_of(slot);
  ClassState& state = classes_[slab.size_class];
  const EntryId id = pool_.PolicyId(slot);
  if (evicted) {
    ++counters_.evicted_parts;
    evicted_.Add(HashOf(pool_.trailer(slot)).Prefix64());
    expired_.Forget(HashOf(pool_.trailer(slot)).Prefix64());
    Tenant& tenant = holders_.TenantOf(static_cast<HolderId>(record.holder));
    ++tenant.evicted_parts;
    tenant.evicted_bytes += record.length;
    counters_.evicted_bytes += record.length;
    state.policy->Evicted(id, PolicyKeyOf(slot));
  } else {
    ++counters_.dropped_parts;
    state.policy->Erase(id);
  }
  EndHolding(slot);
  index_.Erase(slot);
  layouts_.Release(record.layout);
  used_bytes_ -= record.length;
  --state.visible;
  if (record.leases == 0) {
    slab.tick_sum -= record.tick;
    pool_.Free(slot);
    return;
  }
  --state.leased_visible;
  record.set_state(SlotState::kDoomed);  // Its slab stays busy.
  SetTick(slot, 0);
  ++doomed_parts_;
}

PartResult RamTier::Publish(SlotId slot, const PartKey& key, const LayoutId& layout, uint32_t length,
                            uint32_t crc, uint32_t depth, uint32_t tick, UseId use, TailMark tail) {
  SlotId there = Find(key.block.hash, key.coord);
  if (there != kNoSlot && IsExpired(pool_.record(there))) Expire(there), there = kNoSlot;
  if (there != kNoSlot) {
    const PartResult judged = Judge(there, key.block.fingerprint, layouts_.Find(layout), length);
    Abandon(slot);
    if (judged == PartResult::kOk) return PartResult::kExists;  // First writer wins (F20).
    return judged == PartResult::kMiss ? PartResult::kInvalid : judged;
  }
  const LayoutIndex layout_index = coords_seen_.Add(key.coord.Packed()) ? layouts_.Hold(layout) : kNoLayout;
  if (layout_index == kNoLayout) {
    Abandon(slot);
    return PartResult::kBusy;
  }
  if (tail.parts != 0 && !tails_.Add(key.block.hash, slot, tail.parts, tail.junction)) {
    layouts_.Release(layout_index);
    Abandon(slot);
    return PartResult::kInvalid;
  }
  SlotRecord& record = pool_.record(slot);
  record.tail = tail.parts != 0 ? 1 : 0;
  record.length = length & kLengthMask;
  record.layout = layout_index & 0xfff;
  record.set_state(SlotState::kVisible);
  SlotTrailer& trailer = pool_.trailer(slot);
  trailer.fingerprint = key.block.fingerprint;
  std::memcpy(trailer.hash, key.block.hash.bytes.data(), sizeof(trailer.hash));
  trailer.coord = key.coord.Packed();
  trailer.length = length;
  trailer.crc = crc;
  trailer.reserved = 0;
  // Even: bytes and trailer are whole for whoever reads this generation.
  __atomic_store_n(&trailer.generation, __atomic_load_n(&trailer.generation, __ATOMIC_RELAXED) + 1,
                   __ATOMIC_RELEASE);
  index_.Insert(slot);
  Slab& slab = pool_.slab_of(slot);
  --slab.busy;
  --writing_parts_;
  used_bytes_ += length;
  ClassState& state = classes_[slab.size_class];
  ++state.visible;
  SetTick(slot, tick);
  BeginHolding(slot, tick);
  state.policy->Insert(use, pool_.PolicyId(slot),
                       {.key = PolicyKey(key.block.hash, key.coord), .depth = depth, .bytes = length});
  return PartResult::kOk;
}

void RamTier::Abandon(SlotId slot) {
  CISTERN_CHECK(pool_.record(slot).state() == SlotState::kWriting);
  --writing_parts_;
  holders_.Uncharge(static_cast<HolderId>(pool_.record(slot).holder), pool_.record(slot).length);
  pool_.slab_of(slot).tick_sum -= pool_.record(slot).tick;
  pool_.Free(slot);
}

// A tail's parts go together, so what went is counted afterwards.
template <typename Action>
RamTier::Dropped RamTier::CountDropped(Action action) {
  const uint64_t parts = this->parts(), doomed = doomed_parts_;
  action();
  const uint64_t kept = doomed_parts_ - doomed;
  return {.parts = parts - this->parts() - kept, .kept = kept};
}

bool RamTier::Drop(SlotId slot) {
  const bool gone = pool_.record(slot).leases == 0;
  Remove(slot, /*evicted=*/false);
  return gone;
}

RamTier::Dropped RamTier::DropAll() {
  Dropped dropped;
  SlotId from = 0;
  uint64_t looks = UINT64_MAX;
  (void)DropOn(from, looks, dropped);
  dropped.kept += writing_parts_;
  return dropped;
}

bool RamTier::DropOn(SlotId& from, uint64_t& looks, Dropped& dropped) {
  uint32_t s = from >> kSlotIndexBits, i = from & (kSlotsPerSlabMax - 1);
  for (; s < pool_.slab_count(); ++s, i = 0) {
    const Slab& slab = pool_.slab(s);
    do {
      from = s << kSlotIndexBits | i;
      if (looks == 0) return false;
      --looks;
      if (slab.size_class == kNoClass || i >= slab.touched) break;
      if (pool_.record(from).state() != SlotState::kVisible) continue;
      const Dropped now = CountDropped([&] { Drop(from); });
      dropped.parts += now.parts;
      dropped.kept += now.kept;
      looks -= std::min(looks, kLooksOfADrop * (now.parts + now.kept));
    } while (++i < kSlotsPerSlabMax);
  }
  return true;
}

RamTier::Dropped RamTier::DropPart(const BlockHash& block, PartCoord coord) {
  const SlotId slot = Find(block, coord);
  return slot == kNoSlot ? Dropped{} : CountDropped([&] { Drop(slot); });
}

uint64_t RamTier::metadata_bytes() const {
  uint64_t policies = 0;
  for (const ClassState& state : classes_) {
    if (state.policy != nullptr) policies += state.policy->memory_bytes();
  }
  return pool_.metadata_bytes() + index_.metadata_bytes() + policies;
}

}  // namespace cistern
