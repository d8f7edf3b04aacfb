#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/eviction/ghost_table.h"
#include "core/eviction/reuse_model.h"
#include "core/eviction/watch_list.h"
#include "core/eviction_policy.h"
#include "core/random.h"

namespace cistern {

// Drops what promises the fewest hits for the time it holds a slot, by reuse times learned from the load
// itself.
//
// What a request used carries its time and class: trunk where requests have parted, last at the end of a
// path, body in between, by the turn of the conversation (a request that goes on where the last one on its
// path ended is the next turn), the request's length and how much of it was new. ReuseModel says what a class
// is worth at an age. A victim is the least worth of 32 random leaves and the newest request's end; the next
// ones go up its path as far as it was used together. A leaf is an entry without children here, so no parent
// goes before its child. Ghosts remember the ends of evicted paths, so that a conversation is known again,
// and the blocks of watched runs, so that think times longer than an entry's stay are learned. Of many runs
// only a sample is watched: learning is bounded whatever the pool's size, and waits for kLearnPending returns
// or kRequestsAnUpdate requests, away from the touch. Owned by a pool of slots. One thread. 16 bytes an
// entry, 4 a leaf, 8 a ghost (one an entry, at least 65,536), 0.3 MB of tables and at most 0.7 MB of watches.
class CisternPolicy final : public EvictionPolicy {
 public:
  explicit CisternPolicy(uint32_t capacity_entries);

  std::string_view name() const override { return "cistern"; }
  UseId Begin(const PolicyRequest& request) override;
  void Insert(UseId use, EntryId id, const EntryFacts& facts) override;
  void Touch(UseId use, EntryId id, uint32_t depth) override;
  void Refresh(EntryId /*id*/) override {}  // The same use again: nothing to learn, no younger.
  void Erase(EntryId id) override;
  std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) override;
  void Evicted(EntryId id, uint64_t key) override;
  uint64_t memory_bytes() const override;

  uint32_t watched_runs() const { return watches_.live(); }
  // By searches for a victim, of the table: kTableScanMax at most by one.
  uint64_t scanned_entries() const { return scanned_entries_; }
  static constexpr size_t kTableScanMax = 16384;

 private:
  static constexpr uint32_t kGone = 511;  // The class of an entry that is not here.
  static constexpr int kSamples = 32;
  static constexpr uint32_t kLearnPending = 4096;
  static constexpr uint32_t kLeafBit = 1u << 31;

  struct Entry {
    EntryId parent = kNoEntry;     // A slot: what was counted there as a child stays so until this one goes.
    uint32_t children = kLeafBit;  // Here; or, with kLeafBit, the place in leaves_ (none when gone).
    PolicyTick tick = 0;
    uint32_t watch : 18 = 0;
    uint32_t cls : 9 = kGone;
    uint32_t turn : 3 = 0;
    uint32_t is_end : 1 = 0;  // The last block of a path or the one before: who touches it and goes on is the
                              // next turn.
    uint32_t is_trunk : 1 = 0;
  };
  static_assert(sizeof(Entry) == 16);

  // A request under way.
  struct Use {
    UseId id = 0;
    PolicyTick tick = 0;
    uint64_t last_key = 0, before_last_key = 0;  // Of what it lacked, or 0.
    EntryId last_here = kNoEntry, before_last_here = kNoEntry;
    EntryId deepest_here = kNoEntry;  // What is inserted hangs below it.
    EntryId latest = kNoEntry;        // Entry used last: a child of the next, when that is less deep.
    uint32_t latest_depth = 0;
    EntryId tail = kNoEntry;  // Entry used first: the end of its path.
    uint16_t body_class = 0;
    uint8_t turn = 0;
    bool branches = false;       // What was known is trunk now.
    bool reached_known = false;  // Inserts have come down to it.
    uint64_t known_key = 0;      // Deepest key that was known, of what it lacked; or 0.
    uint16_t trunk_stride = 1, body_stride = 1;
    uint16_t trunk_seen = 0, body_seen = 0;
    WatchId trunk_watch = 0, body_watch = 0, last_watch = 0;
  };
  struct Return {
    WatchId watch;
    PolicyTick tick;
  };

  Use& UseOf(UseId id);
  UseId OpenUse(const PolicyRequest& request);
  void CloseUse(Use& use);
  void FindTurn(const PolicyRequest& request, Use& use);
  uint32_t TrunkLength(absl::Span<const EntryId> here) const;
  void SetClass(Use& use, Entry& entry, bool is_last, bool is_end);
  void Follow(Use& use, EntryId id, uint32_t depth);
  void SetParent(EntryId child, EntryId parent);
  void DropChild(EntryId parent);
  void Unlink(EntryId id);  // From its parent and the leaves; no longer here.
  bool IsHere(EntryId id) const { return id < entries_.size() && entries_[id].cls != kGone; }
  void AddLeaf(EntryId id);
  void RemoveLeaf(EntryId id);
  bool IsLeaf(const Entry& entry) const { return (entry.children & kLeafBit) != 0; }

  void Learn();
  void Came(WatchId watch);
  std::optional<EntryId> SampleLeaves(absl::FunctionRef<bool(EntryId)> may_evict);
  std::optional<EntryId> ScanForAny(absl::FunctionRef<bool(EntryId)> may_evict);

  std::vector<Entry> entries_;
  std::vector<EntryId> leaves_;
  ReuseModel model_;
  WatchList watches_{model_};  // Over model_.
  GhostTable ghosts_;
  std::vector<Return> returns_;  // To be learned; at most kLearnPending.
  std::array<Use, kUsesMax> uses_;
  UseId next_use_ = 1;
  PolicyTick now_ = 0;
  uint64_t requests_ = 0;
  uint64_t updated_at_ = 0;  // In requests.
  Random random_{1};         // Any seed does; the same one keeps simulations repeatable.
  uint32_t scan_hand_ = 0;
  uint64_t scanned_entries_ = 0;
  EntryId next_victim_ = kNoEntry;  // Up the path of the latest victim.
};

}  // namespace cistern
