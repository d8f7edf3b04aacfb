#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache_node/tail_mark.h"
#include "core/ids.h"
#include "core/part.h"

namespace cistern {

// Which tails the disk log has parts of, and how many make each whole: what no single record can say, since
// several ranks write one tail. Where the parts lie is in the DiskIndex. Owner: DiskLog. Thread: the shard's.
class DiskTails {
 public:
  struct Tail {
    uint32_t wanted = 0;
    std::vector<uint32_t> coords;  // Packed; those that the log has.
    bool Has(PartCoord coord) const;
  };

  bool empty() const { return tails_.empty(); }
  const Tail* Find(const BlockHash& block) const {
    const auto at = tails_.find(block);
    return at == tails_.end() ? nullptr : &at->second;
  }
  void Add(const BlockHash& block, PartCoord coord, TailMark mark);
  void Erase(const BlockHash& block, PartCoord coord);
  void Clear() { tails_.clear(); }
  // After many entries went at once: keeps what is_there(block, coord) still confirms.
  template <typename IsThere>
  void Prune(IsThere is_there) {
    absl::erase_if(tails_, [&](auto& row) {
      std::erase_if(row.second.coords,
                    [&](uint32_t coord) { return !is_there(row.first, PartCoord::Unpack(coord)); });
      return row.second.coords.empty();
    });
  }

 private:
  absl::flat_hash_map<BlockHash, Tail, BlockHashHasher> tails_;
};

}  // namespace cistern
