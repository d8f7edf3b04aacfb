#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  RetentionBook(Manifest& manifest, uint32_t now_unix_s);

  // False: kTimedBlocksMax others have rows.
  bool Set(const BlockHash& block, const Row& row);
  // Used again: a sliding row ends later. Told to the manifest when it has moved by a quarter of its time.
  void Slide(const BlockHash& block, uint32_t expires_unix_s);
  const Row* Find(const BlockHash& block) const;
  bool IsLive(const BlockHash& block, uint32_t now_unix_s) const {
    const Row* row = Find(block);
    return row != nullptr && row->expires_unix_s > now_unix_s;
  }
  // Blocks whose time has ended, at most `max`; they leave the book.
  void TakeExpired(uint32_t now_unix_s, size_t max, std::vector<BlockHash>& ended);
  size_t size() const { return rows_.size(); }

 private:
  using End = std::pair<uint32_t, BlockHash>;
  void Tell(const BlockHash& block, Row& row);

  Manifest& manifest_;
  absl::flat_hash_map<BlockHash, Row, BlockHashHasher> rows_;
  // One a row, soonest first; where the row has moved on, it is put back when its turn comes.
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
};

}  // namespace cistern
