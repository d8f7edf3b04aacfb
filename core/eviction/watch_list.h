#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/eviction/reuse_model.h"
#include "core/eviction_policy.h"

namespace cistern {

using WatchId = uint32_t;  // 0: none.

// Runs under watch: what one request left behind in one class, by a few of its blocks, here or evicted. Moves
// them through the model's ages, exactly but late: whenever asked. Owned by CisternPolicy; one thread; 20
// bytes a run, paid as they come, at most kWatchesMax; allocates only while it grows.
class WatchList {
 public:
  static constexpr uint32_t kWatchesMax = (1u << 15) - 1;
  static constexpr uint32_t kBlocksMax = 15;  // Of one run.

  explicit WatchList(ReuseModel& model) : model_(model), watches_(1) {}

  // A run used at `tick`, no earlier than any before it, that will be watched by up to `blocks` blocks, each
  // with that share of its weight. The caller has to Release. 0 when there is no room.
  WatchId Open(int cls, PolicyTick tick, uint32_t blocks);
  // One block more is under watch; false when there are as many as Open was told.
  bool TryJoin(WatchId id, PolicyTick now);
  // One block less: it came back, or is known no more.
  void CameBack(WatchId id, PolicyTick now) { Part(id, now, /*came_back=*/true); }
  void Lose(WatchId id, PolicyTick now) { Part(id, now, /*came_back=*/false); }
  // No block will join any more.
  void Release(WatchId id);

  // Moves every run to the bin of its age.
  void Advance(PolicyTick now);
  uint32_t live() const { return live_; }
  uint64_t memory_bytes() const { return watches_.capacity() * sizeof(Watch); }

 private:
  struct Watch {
    PolicyTick tick = 0;
    WatchId older = 0, newer = 0;  // In its bin; while free, `older` is the next free one.
    uint16_t cls = 0;
    uint8_t bin = 0;
    uint8_t open = 0;
    uint8_t joined = 0;  // In all.
    uint8_t left = 0;    // Under watch now.
    uint8_t blocks = 1;  // Of which each has this part of the weight.
    float Share() const { return 1.f / static_cast<float>(blocks); }
  };
  struct Bin {
    WatchId oldest = 0, newest = 0;
  };
  void Part(WatchId id, PolicyTick now, bool came_back);
  void CatchUp(WatchId id, PolicyTick now);
  void PushBin(WatchId id, int bin);
  void PopBin(WatchId id);
  void Free(WatchId id);

  ReuseModel& model_;
  std::vector<Watch> watches_;  // [0] is nobody's.
  WatchId free_ = 0;
  uint32_t live_ = 0;
  std::array<Bin, ReuseModel::kBins> bins_;
};

}  // namespace cistern
