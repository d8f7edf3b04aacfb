#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cache_node/block_index.h"
#include "cache_node/coords_seen.h"
#include "cache_node/evicted_memory.h"
#include "cache_node/holder_table.h"
#include "cache_node/layout_table.h"
#include "cache_node/node_counters.h"
#include "cache_node/slab_pool.h"
#include "cache_node/tail_table.h"
#include "core/clock.h"
#include "core/eviction_policy.h"
#include "core/part.h"
#include "core/random.h"

namespace cistern {

inline constexpr uint64_t kLooksOfADrop = 4;  // A part that goes costs as much as so many that are not there.

// What a slot is reserved for. A tenant that wants its puts refused when its quota is full still reads what
// it has in the tiers below and above: its own parts make room for that.
enum class ComesFrom : uint8_t { kPut, kOtherTier };

// The RAM of one shard: which parts are here, where, what may go, and how room is made.
//
// A put that reclaim can satisfy is satisfied, else it is told so at once (F16). Room comes, in this order,
// from a free slot of the size, a free slab, or whichever is colder: the policy's victim of the same size, or
// a whole slab of another size. Leased parts and parts being written never go. A dropped part that is leased
// leaves the index at once; its slot is freed with the last lease (F15). A tail goes as one, and before the
// block it hangs on; what nobody can reach any more, and tails that have a newer one, go before all else.
// Owner: NodeShard. Thread: the shard's. Nothing here allocates once slabs, index and policies have grown to
// their size.
class RamTier {
 public:
  // region: SlabPool::RegionBytes(ram_bytes) long, outlives the tier. policy must be known (CheckPolicy).
  RamTier(MemoryRegion& region, uint64_t ram_bytes, std::string policy, Random& random,
          NodeCounters& counters);
  static absl::Status CheckPolicy(const std::string& policy);

  // Coarse time of use, 8.4 ms a step; wraps after more than a year.
  static uint32_t TickOf(Nanos now) { return static_cast<uint32_t>(now >> 23); }

  // --- finding
  void FindBatch(absl::Span<Probe> probes) { index_.FindBatch(probes); }
  SlotId Find(const BlockHash& hash, PartCoord coord) { return index_.Find(hash, coord.Packed()); }
  LayoutIndex FindLayout(const LayoutId& layout) const { return layouts_.Find(layout); }
  // What a found part is to one who asks for these: kOk, kMiss with a collision counted (F01), or kLayout
  // (F05).
  PartResult Judge(SlotId slot, uint64_t fingerprint, LayoutIndex layout, uint32_t part_bytes);

  // --- using
  // False when the slot has UINT16_MAX leases already.
  bool TryLease(SlotId slot);
  void Unlease(SlotId slot);
  // A request for parts of one size has come: `here` are its first ones, `missing` the keys (PolicyKey) of
  // those that follow, `to_store` when they will be put. Touches nothing. The name is good for touches and
  // puts of the same request; 0 names none.
  UseId BeginUse(uint32_t part_bytes, absl::Span<const SlotId> here, absl::Span<const uint64_t> missing,
                 uint32_t tick, bool to_store);
  // The request, if any, that lately lacked this part first: its puts belong to it.
  UseId UseThatLacked(uint32_t part_bytes, uint64_t key) const;
  static uint64_t PolicyKey(const BlockHash& hash, PartCoord coord) {
    return hash.Prefix64() + coord.Packed() * uint64_t{0x9e3779b97f4a7c15};
  }
  void Touch(SlotId slot, uint32_t tick, UseId use = 0, uint32_t depth = 0);
  // Used on by the request that touched it before: as recent as a touch, but no reuse.
  void Refresh(SlotId slot, uint32_t tick);

  // --- storing
  // A slot for a part; kOk, kNoSpace, kTooLarge, kInvalid (no bytes) or kBusy (too many sizes).
  // kNoSpace also where the holder's quota is full and its own parts may not, or cannot, make room (F22).
  PartResult Reserve(uint32_t part_bytes, uint32_t tick, SlotId& slot, HolderId holder = 0,
                     ComesFrom from = ComesFrom::kPut);
  // Makes a reserved slot visible whose bytes are checked. kOk; or the slot is freed and the result says why:
  // kExists, kLayout (the key is here under another layout or length), kInvalid (collision, F01), kBusy (too
  // many layouts or coordinates).
  PartResult Publish(SlotId slot, const PartKey& key, const LayoutId& layout, uint32_t length, uint32_t crc,
                     uint32_t depth, uint32_t tick, UseId use = 0, TailMark tail = {});
  void Abandon(SlotId slot);  // A reserved slot is not wanted any more.

  // --- retention
  HolderTable& holders() { return holders_; }
  const HolderTable& holders() const { return holders_; }
  const HolderTable::Holder& HolderOf(SlotId slot) const {
    return holders_.holder(pool_.record(slot).holder);
  }
  // The time that expiry is judged by; goes forward only.
  void AdvanceTo(uint32_t tick) { now_tick_ = tick; }
  bool IsExpired(const SlotRecord& record) const {
    return record.expires != 0 && static_cast<int32_t>(now_tick_ - record.expires) >= 0;
  }
  // A visible part's time has ended: it goes.
  void Expire(SlotId slot);
  // A visible part with a time to live gets another end.
  void SetExpiry(SlotId slot, uint32_t tick) { pool_.record(slot).expires = tick == 0 ? 1 : tick; }
  // The part is here and wanted for longer, or held faster, from now on. False: what it would charge is too
  // much; it stays as it is.
  bool Retain(SlotId slot, HolderId holder);
  // Looks at `slots` more slots and lets go what has expired among them.
  void SweepExpired(uint32_t slots);
  bool HasTimed() const { return timed_parts_ > 0; }
  bool WasExpired(const BlockHash& block) const { return expired_.Has(block.Prefix64()); }
  void NoteExpired(const BlockHash& block);

  // --- tails
  bool HasTails() const { return !tails_.empty(); }
  bool IsTailWhole(const BlockHash& block) const { return tails_.IsWhole(block); }
  // The parts that are here of the tail behind this block.
  absl::Span<const SlotId> TailSlots(const BlockHash& block) const;
  // Of a visible part.
  TailMark TailMarkOf(SlotId slot) const;
  // The chain of this block has a newer tail and goes on with `successor`: the one here goes first, unless
  // prompts part here.
  void SupersedeTail(const BlockHash& block, uint64_t successor);
  // A block before this part's is nowhere: it goes first, with its block's tail, until somebody touches it.
  void Strand(SlotId slot);

  // A part of this block was here and had to make room, as far as is remembered.
  bool WasEvicted(const BlockHash& block) const { return evicted_.Has(block.Prefix64()); }

  // --- dropping. True: the bytes are gone; false: a lease keeps them.
  bool Drop(SlotId slot);
  struct Dropped {
    uint64_t parts = 0;
    uint64_t kept = 0;  // Leased or being written.
  };
  Dropped DropAll();
  // The same in turns: slots from `from` on, `looks` of them at most, which are taken off; one whose part
  // goes costs kLooksOfADrop more. True: those were the last. What comes meanwhile goes, or stays.
  bool DropOn(SlotId& from, uint64_t& looks, Dropped& dropped);
  // If it is here; a tail's goes with its tail. All parts of a block: one after the other, by coords_seen().
  Dropped DropPart(const BlockHash& block, PartCoord coord);
  const CoordsSeen& coords_seen() const { return coords_seen_; }

  // Called with what is about to be evicted, its bytes still whole: a part, or all that is here of a tail.
  // Tails that have a newer one are not worth it. It may not call the tier back but to read. Null: nobody is.
  using EvictionHook = std::function<void(absl::Span<const SlotId>)>;
  void SetEvictionHook(EvictionHook hook) { eviction_hook_ = std::move(hook); }
  // Parts of this size that make room next, as far as the policy knows, until `visit` says false. It
  // may lease them.
  void NextToGo(ClassId size_class, absl::FunctionRef<bool(SlotId)> visit) const;
  ClassId ClassOf(SlotId slot) { return pool_.slab_of(slot).size_class; }

  const SlotRecord& record(SlotId slot) const { return pool_.record(slot); }
  const LayoutId& LayoutOf(SlotId slot) const {
    return layouts_.Id(pool_.record(slot).layout);
  }  // Visible parts.
  const SlotTrailer& trailer(SlotId slot) const { return pool_.trailer(slot); }
  std::byte* data(SlotId slot) const { return pool_.data(slot); }
  uint64_t Offset(SlotId slot) const { return pool_.Offset(slot); }
  uint64_t TrailerOffset(SlotId slot) const { return pool_.TrailerOffset(slot); }

  uint64_t capacity_bytes() const { return pool_.capacity_bytes(); }
  uint64_t slab_bytes() const { return pool_.slab_bytes(); }
  uint64_t used_bytes() const { return used_bytes_; }      // Visible parts x length.
  uint64_t parts() const { return index_.size(); }         // Visible parts.
  uint64_t pinned_bytes() const { return pinned_bytes_; }  // Parts with a lease.
  uint64_t leased_parts() const { return leased_parts_; }  // Parts with a lease, doomed ones too.
  uint64_t doomed_parts() const { return doomed_parts_; }
  uint64_t writing_parts() const { return writing_parts_; }
  uint64_t metadata_bytes() const;
  uint64_t stranded_bytes() const { return stranded_bytes_; }      // Visible, but nobody can reach them.
  uint64_t superseded_bytes() const { return superseded_bytes_; }  // Of tails that have a newer one.
  uint64_t tails() const { return tails_.size(); }
  const SlabPool& pool() const { return pool_; }

 private:
  static constexpr uint32_t kSlabsLookedAt =
      128;  // Per reservation that has to choose a slab of another size.

  struct ClassState {
    std::unique_ptr<EvictionPolicy> policy;
    uint32_t stride = 0;
    uint32_t visible = 0;
    uint32_t leased_visible = 0;
    std::vector<SlotId> first{};  // Candidates that go first; some may have been used again or be gone.
  };
  ClassState& StateOf(ClassId size_class);
  SlotId MakeRoom(ClassId size_class, uint32_t tick);
  // ram_tier_retention.cc
  bool MayEvict(SlotId slot, bool soft_pins) const;
  SlotId VictimOf(ClassId size_class, bool soft_pins);
  bool MakeQuotaRoom(HolderId holder, uint32_t bytes, ClassId size_class, ComesFrom from);
  bool FloorsAllow(uint32_t slab_index);
  SlotId OwnVictim(TenantIndex tenant, ClassId size_class);
  bool MayCharge(HolderId holder, uint32_t bytes, uint32_t charged_already);
  void BeginHolding(SlotId slot, uint32_t tick);
  void Slide(SlotId slot, uint32_t tick);
  void EndHolding(SlotId slot);
  // look_at_all: nothing else can make room, so the answer "none" has to be true.
  uint32_t ColdestOtherSlab(ClassId size_class, bool look_at_all);
  void EmptySlab(uint32_t slab_index);
  // Out of index and policy; freed unless leased. A tail's part takes the others along, a block its tail.
  void Remove(SlotId slot, bool evicted);
  void RemoveOne(SlotId slot, bool evicted);
  SlotId TakeFirst(ClassState& state);
  void MarkFirst(SlotId slot);
  void ClearFirst(SlotId slot);
  static BlockHash HashOf(const SlotTrailer& trailer);
  void SetTick(SlotId slot, uint32_t tick);
  uint64_t PolicyKeyOf(SlotId slot) const;
  template <typename Action>
  Dropped CountDropped(Action action);

  NodeCounters& counters_;
  EvictionHook eviction_hook_;
  const std::string policy_name_;
  SlabPool pool_;
  BlockIndex index_;  // Over pool_.
  CoordsSeen coords_seen_;
  LayoutTable layouts_;
  TailTable tails_;  // Names slots of pool_.
  EvictedMemory evicted_, expired_;
  HolderTable holders_;
  uint32_t now_tick_ = 0;
  uint64_t timed_parts_ = 0;  // Visible, with a time to live.
  uint64_t soft_pinned_ = 0;  // Visible.
  uint32_t sweep_slab_ = 0, sweep_slot_ = 0;
  uint32_t own_slab_ = 0;
  std::vector<EntryId> passed_over_;  // Scratch of VictimOf.
  std::vector<ClassState> classes_;
  std::vector<EntryId> entries_here_;  // Scratch of BeginUse.
  struct Lack {
    uint64_t key = 0;
    UseId use = 0;
    uint32_t part_bytes = 0;
  };
  std::array<Lack, kUsesMax> lacks_{};  // First key that a request lacked, by its low bits.
  uint32_t slab_hand_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t pinned_bytes_ = 0;
  uint64_t leased_parts_ = 0;
  uint64_t doomed_parts_ = 0;
  uint64_t writing_parts_ = 0;
  uint64_t stranded_bytes_ = 0;
  uint64_t superseded_bytes_ = 0;
};

}  // namespace cistern
