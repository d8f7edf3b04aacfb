#include "cache_node/disk/disk_tails.h"

#include <algorithm>

namespace cistern {

bool DiskTails::Tail::Has(PartCoord coord) const {
  return std::find(coords.begin(), coords.end(), coord.Packed()) != coords.end();
}

void DiskTails::Add(const BlockHash& block, PartCoord coord, TailMark mark) {
  Tail& tail = tails_[block];
  tail.wanted = mark.parts;
  if (!tail.Has(coord)) tail.coords.push_back(coord.Packed());
}

void DiskTails::Erase(const BlockHash& block, PartCoord coord) {
  const auto at = tails_.find(block);
  if (at == tails_.end()) return;
  std::erase(at->second.coords, coord.Packed());
  if (at->second.coords.empty()) tails_.erase(at);
}

}  // namespace cistern
