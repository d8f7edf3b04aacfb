#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/eviction/ghost_queue.h"
#include "core/eviction/link_list.h"
#include "core/eviction_policy.h"

namespace cistern {

// Segmented LRU: entries that one request has used, and entries that came back, each in their order of use.
// The oldest of the first go, but for those of the second that have waited `patience` times as long. At
// patience 1 that is LRU. It is learned: per segment, how often an entry comes back, here or as a ghost, at
// about the age at which it would go.
//
// Nothing but the order of use and who came back decides, so nodes that share a chain give up the same
// chains. A parent is used as often as its child and as late, so it goes after it. An age is the number of
// entries that have come since: fast or slow traffic makes no difference, and it is right below 2^31. Owned
// by a pool of slots. One thread. 12 bytes an entry, 16 a ghost (one an entry, at least kGhostsMin).
class SlruPolicy final : public EvictionPolicy {
 public:
  static constexpr uint32_t kGhostsMin = 16'384;
  static constexpr double kPatienceMax = 4;

  explicit SlruPolicy(uint32_t capacity_entries);

  std::string_view name() const override { return "slru"; }
  UseId Begin(const PolicyRequest& request) override;
  void Insert(UseId use, EntryId id, const EntryFacts& facts) override;
  void Touch(UseId use, EntryId id, uint32_t depth) override;
  void Refresh(EntryId id) override;
  void Erase(EntryId id) override;
  std::optional<EntryId> Victim(absl::FunctionRef<bool(EntryId)> may_evict) override;
  void Next(absl::FunctionRef<bool(EntryId)> visit) const override;
  void Evicted(EntryId id, uint64_t key) override;
  uint64_t memory_bytes() const override;

  double patience() const { return segments_[kAgain].patience; }

 private:
  enum SegmentIndex : uint32_t { kOnce = 0, kAgain = 1 };
  // When an entry was used last, by clock_, and in the lowest bit the segment it is in.
  using Stamp = uint32_t;

  struct Segment {
    LinkList order;
    double patience = 1;  // How much longer than in kOnce an entry may wait here.
    // Of entries about as old as those that go: how many came back, and for how long they were waited for, in
    // multiples of the age at which they go.
    double came = 0;
    double waited = 0;
  };
  // A request that lacks blocks that were here once.
  struct Use {
    UseId id = 0;
    bool reached_known = false;  // Inserts come deepest first; they have come down to what is known.
    uint64_t known_key = 0;      // The deepest key that it lacks and that was here.
  };

  static SegmentIndex SegmentOf(Stamp stamp) { return static_cast<SegmentIndex>(stamp & 1); }
  Stamp StampFor(SegmentIndex segment) const { return clock_ << 1 | segment; }
  uint32_t AgeOf(Stamp stamp) const { return ((clock_ << 1) - (stamp & ~Stamp{1})) >> 1; }
  // How long it has waited, as one of kOnce would have to.
  double WaitOf(EntryId id) const {
    return (AgeOf(stamps_[id]) + 1.0) / segments_[SegmentOf(stamps_[id])].patience;
  }
  uint32_t size() const { return segments_[kOnce].order.size() + segments_[kAgain].order.size(); }
  void Put(EntryId id, SegmentIndex segment);
  void Remove(EntryId id) { segments_[SegmentOf(stamps_[id])].order.Remove(links_, id); }
  void Observe(Stamp stamp, bool came_back);
  void Learn();
  template <typename Visit>
  void VisitInOrder(Visit visit) const;

  LinkTable links_;
  std::vector<Stamp> stamps_;
  std::array<Segment, 2> segments_;
  GhostQueue ghosts_;  // With their stamps.
  std::array<Use, kUsesMax> uses_;
  UseId next_use_ = 1;
  uint32_t clock_ = 1;       // Entries that have come.
  double turnover_ = 0;      // Wait of those that went lately; 0: none has gone.
  uint32_t learned_at_ = 1;  // By clock_.
};

}  // namespace cistern
