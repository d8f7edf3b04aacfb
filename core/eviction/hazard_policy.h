#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/eviction/ghost_ring.h"
#include "core/eviction/reuse_model.h"
#include "core/eviction_policy.h"
#include "core/random.h"

namespace cistern {

// Drops what promises the fewest hits for the slot it holds, by reuse times learned from the load itself.
//
// Calls that go up one chain (depths that fall) are one request. The entries a request used last and as often
// as each other are a run: same age, same class (used once, twice, three times, more), so same worth in
// ReuseModel. A victim is the least worth of 32 random leaves; the next ones go up its run. A leaf is an
// entry without children here, so no parent goes before its child. Evicted keys stay ghosts: think times
// longer than an entry's stay are seen too. Against LRU it wins where memory is scarce: it lets one-time
// prompts go, and knows that what was used a second ago need not be what comes back next. eviction_test has
// the figures. Owned by a pool of slots. One thread. 44 bytes an entry, 32 a run, 20 a ghost (two ghosts an
// entry, at least 65,536).
class HazardPolicy final : public EvictionPolicy {
 public:
  explicit HazardPolicy(uint32_t capacity_entries);

  std::string_view name() const override { return "hazard"; }
  void Insert(EntryId id, uint64_t ghost_key, uint32_t depth) override;
  void Touch(EntryId id) override;
  void Refresh(EntryId /*id*/) override {}  // The same use again: nothing to learn, no younger.
  void Erase(EntryId id) override;
  std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) override;
  void Evicted(EntryId id) override;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kSamples = 32;

  // An entry by id and the time it came: an id is given again once its block is gone.
  struct Ref {
    EntryId id = kNone;
    uint32_t stamp = 0;
    friend bool operator==(const Ref&, const Ref&) = default;
  };
  struct Entry {
    uint64_t key = 0;
    uint32_t run = kNone;  // kNone: not here.
    uint32_t depth = 0;
    Ref parent;  // Kept while it is here; nothing in particular once it is gone.
    uint32_t stamp = 0;
    uint32_t children = 0;
    uint32_t leaf_place = kNone;  // In leaves_.
  };
  // What one request left behind in one class. `left` counts its entries here and its ghosts; none left:
  // free.
  struct Run {
    uint64_t tick = 0;  // When it was used.
    uint32_t left = 0;
    uint32_t size = 0;  // It counts 1 in the model, however long: each of its blocks 1 / size.
    uint32_t older = kNone, newer = kNone;  // In its bin.
    uint8_t cls = 0;
    uint8_t bin = 0;
    bool open = false;  // The request at hand still adds to it; not watched yet.
    double Share() const { return 1.0 / size; }
  };
  struct Bin {
    uint32_t oldest = kNone, newest = kNone;
  };

  void BeginUse(EntryId id, uint64_t key, uint32_t depth, bool is_touch);
  bool ContinuesTouched() const;
  void EndUse(EntryId id, uint8_t cls);
  void NextRequest();
  void LinkToParent(Ref child, EntryId parent);
  void Unlink(EntryId id);  // From its parent and the leaves; no longer here.

  uint32_t OpenRun(uint8_t cls);
  void CloseRun();
  // One block less of a run: it came back, or is known no more.
  void LeaveRun(uint32_t run, bool came_back);
  void PushBin(uint32_t run, uint8_t bin);
  void PopBin(uint32_t run);

  bool IsHere(Ref ref) const {
    return ref.id < entries_.size() && entries_[ref.id].run != kNone && entries_[ref.id].stamp == ref.stamp;
  }
  Ref RefTo(EntryId id) const { return {id, entries_[id].stamp}; }
  void AddLeaf(EntryId id);
  void RemoveLeaf(EntryId id);
  double WorthOf(EntryId id) const;
  std::optional<EntryId> SampleLeaves(absl::FunctionRef<bool(EntryId)> may_evict);
  std::optional<EntryId> ScanForAny(absl::FunctionRef<bool(EntryId)> may_evict);

  std::vector<Entry> entries_;
  std::vector<EntryId> leaves_;
  std::vector<Run> runs_;
  std::vector<uint32_t> free_runs_;
  std::array<Bin, ReuseModel::kBins> bins_;
  ReuseModel model_;
  GhostRing ghosts_;
  Random random_{1};  // Any seed does; the same one keeps simulations repeatable.
  uint64_t tick_ = 0;
  uint32_t next_stamp_ = 0;
  uint32_t scan_hand_ = 0;

  // The request at hand.
  uint32_t open_run_ = kNone;
  Ref last_;  // Its latest entry.
  uint32_t last_depth_ = 0;
  uint64_t last_key_ = 0;
  bool last_is_touch_ = false;
  Ref deepest_touched_;  // Of it, or of the latest request that touched anything: inserts that follow
                         // continue there.
  bool touched_any_ = false;
  Ref next_victim_;  // Up the run of the latest victim.
};

}  // namespace cistern
