#include "cache_node/disk/disk_tails.h"

namespace cistern {

bool DiskTails::Tail::Has(PartCoord coord) const {
  return std::find(coords.begin(), coords.end(), coord.Packed()) != coords.end();
}

void DiskTails::Add(const BlockHash& block, PartCoord coord, TailMark mark) {
  Tail& tail = tails_[block];
  if (tail.coords.empty()) tail.doubts = doubts_;
  tail.wanted = mark.parts;
  if (!tail.Has(coord)) tail.coords.push_back(coord.Packed());
}

void DiskTails::Erase(const BlockHash& block, PartCoord coord) {
  Tail* const tail = tails_.Find(block);
  if (tail == nullptr) return;
  std::erase(tail->coords, coord.Packed());
  if (tail->coords.empty()) tails_.Erase(block);
}

}  // namespace cistern
