#include "core/eviction/watch_list.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {

WatchId WatchList::Open(int cls, PolicyTick tick, uint32_t blocks) {
  CISTERN_CHECK(blocks > 0 && blocks <= kBlocksMax);
  WatchId id = free_;
  if (id != 0) {
    free_ = watches_[id].older;
  } else if (watches_.size() <= kWatchesMax) {
    id = static_cast<WatchId>(watches_.size());
    watches_.emplace_back();
  } else {
    return 0;
  }
  watches_[id] = Watch{
      .tick = tick, .cls = static_cast<uint16_t>(cls), .open = 1, .blocks = static_cast<uint8_t>(blocks)};
  PushBin(id, 0);
  ++live_;
  return id;
}

bool WatchList::TryJoin(WatchId id, PolicyTick now) {
  CatchUp(id, now);
  Watch& watch = watches_[id];
  CISTERN_CHECK(watch.open != 0);
  if (watch.joined == watch.blocks) return false;
  ++watch.joined;
  ++watch.left;
  model_.Enter(watch.cls, watch.bin, now, watch.Share());
  return true;
}

void WatchList::Part(WatchId id, PolicyTick now, bool came_back) {
  CatchUp(id, now);
  Watch& watch = watches_[id];
  CISTERN_CHECK(watch.left > 0);
  --watch.left;
  model_.Leave(watch.cls, watch.bin, now, watch.Share());
  if (came_back) model_.CameBack(watch.cls, watch.bin, watch.Share());
  if (watch.left == 0 && watch.open == 0) Free(id);
}

void WatchList::Release(WatchId id) {
  watches_[id].open = 0;
  if (watches_[id].left == 0) Free(id);
}

void WatchList::Free(WatchId id) {
  PopBin(id);
  watches_[id].older = free_;
  free_ = id;
  --live_;
}

// A step lies where its age begins, even when it is told of later. Runs of a bin are in the order of their
// ticks, so a run that moves on before older ones only does so late: those follow at the next Advance.
void WatchList::CatchUp(WatchId id, PolicyTick now) {
  Watch& watch = watches_[id];
  const int bin = ReuseModel::BinOf(now - watch.tick);
  if (bin <= watch.bin) return;
  PopBin(id);
  const float weight = static_cast<float>(watch.left) * watch.Share();
  for (int b = watch.bin; b < bin; ++b) {
    const PolicyTick at = watch.tick + static_cast<PolicyTick>(ReuseModel::BinStart(b + 1));
    model_.Leave(watch.cls, b, at, weight);
    model_.Enter(watch.cls, b + 1, at, weight);
  }
  PushBin(id, bin);
}

void WatchList::Advance(PolicyTick now) {
  for (int b = ReuseModel::kBins - 2; b >= 0; --b) {
    // The newest of a bin may be older than one before it (see CatchUp): then both wait for the one.
    while (bins_[b].oldest != 0 && now - watches_[bins_[b].oldest].tick >= ReuseModel::BinStart(b + 1)) {
      CatchUp(bins_[b].oldest, now);
    }
  }
}

void WatchList::PushBin(WatchId id, int bin) {
  Bin& list = bins_[bin];
  Watch& watch = watches_[id];
  watch.bin = static_cast<uint8_t>(bin);
  watch.older = list.newest;
  watch.newer = 0;
  (list.newest == 0 ? list.oldest : watches_[list.newest].newer) = id;
  list.newest = id;
}

void WatchList::PopBin(WatchId id) {
  const Watch& gone = watches_[id];
  Bin& list = bins_[gone.bin];
  (gone.older == 0 ? list.oldest : watches_[gone.older].newer) = gone.newer;
  (gone.newer == 0 ? list.newest : watches_[gone.newer].older) = gone.older;
}

}  // namespace cistern
