#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache_node/block_table.h"
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
    uint32_t doubts = 0;           // DiskTails' when it was last looked through.
    std::vector<uint32_t> coords;  // Packed; those that the log has.
    bool Has(PartCoord coord) const;
  };

  explicit DiskTails(Random& random) : tails_(random) {}

  bool empty() const { return tails_.empty(); }
  // Null: none. is_there(coord) says what a tail has that is in doubt.
  template <typename IsThere>
  const Tail* Find(const BlockHash& block, IsThere is_there) {
    Tail* const tail = tails_.Find(block);
    if (tail == nullptr || tail->doubts == doubts_) return tail;
    std::erase_if(tail->coords, [&](uint32_t coord) { return !is_there(PartCoord::Unpack(coord)); });
    tail->doubts = doubts_;
    if (!tail->coords.empty()) return tail;
    tails_.Erase(block);
    return nullptr;
  }
  void Add(const BlockHash& block, PartCoord coord, TailMark mark);
  void Erase(const BlockHash& block, PartCoord coord);
  // Entries of the index went whose blocks nobody can name: any tail may lack parts, and is looked through
  // when it is asked for. Of a tail that lost all of them and is not asked for, its name stays.
  void Doubt() { ++doubts_; }
  // All of them in turns: a piece a turn, while number < pieces().
  size_t pieces() const { return tails_.pieces(); }
  void ErasePiece(size_t number) { tails_.ErasePiece(number); }

 private:
  uint32_t doubts_ = 0;
  BlockTable<Tail> tails_;
};

}  // namespace cistern
