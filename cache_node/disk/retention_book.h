#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "cache_node/block_table.h"
#include "cache_node/disk/manifest.h"
#include "core/ids.h"
#include "core/retention.h"

namespace cistern {

inline constexpr size_t kTimedBlocksMax = size_t{1} << 20;  // On one disk, with a time to live.

// When the blocks on disk that have a time to live end. Extents only say that they have one: the end moves
// with their use, so it stands in the manifest (ttl/<hash>). A block whose row is lost has ended: nothing
// outlives its time. Times are of the wall clock, as they have to be over a restart. Owner: DiskTier. Thread:
// the shard's.
class RetentionBook {
 public:
  struct Row {
    uint32_t expires_unix_s = 0;
    uint32_t ttl_s = 0;
    bool sliding = false;
    uint32_t told_unix_s = 0;  // The end that the manifest has.
  };

  // Takes the manifest's rows. now_unix_s: what has ended is forgotten; no row ends later than its time to
  // live allows, whatever the clock was when it was written.
  RetentionBook(Manifest& manifest, uint32_t now_unix_s, Random& random);

  // False: kTimedBlocksMax others have rows.
  bool Set(const BlockHash& block, const Row& row);
  // Used again: a sliding row ends later. Told to the manifest when it has moved by a quarter of its time.
  void Slide(const BlockHash& block, uint32_t expires_unix_s);
  const Row* Find(const BlockHash& block) const { return rows_.Find(block); }
  bool IsLive(const BlockHash& block, uint32_t now_unix_s) const {
    const Row* row = Find(block);
    return row != nullptr && row->expires_unix_s > now_unix_s;
  }
  // A block whose time has ended; it leaves the book. Looks at `looks` rows at most, and takes them off.
  std::optional<BlockHash> TakeExpired(uint32_t now_unix_s, uint64_t& looks);
  size_t size() const { return rows_.size(); }

 private:
  using End = std::pair<uint32_t, BlockHash>;
  void Tell(const BlockHash& block, Row& row);

  Manifest& manifest_;
  BlockTable<Row> rows_;
  // One a row, soonest first; where the row has moved on, it is put back when its turn comes.
  std::priority_queue<End, std::deque<End>, std::greater<End>> ends_;
};

}  // namespace cistern
