#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cache_node/block_table.h"
#include "cache_node/slot_record.h"
#include "cache_node/tail_mark.h"
#include "core/ids.h"

namespace cistern {

// The tails of a shard: which parts each has, and whether that is all of them (DESIGN §4). A tail is named by
// the block that ends at its boundary; its parts lie in slots like others and are found in the index by that
// block's hash. The table holds no bytes: whoever takes one part of a tail away takes them all (RamTier).
//
// Owner: RamTier. Thread: the shard's. Looking up allocates nothing.
class TailTable {
 public:
  struct Tail {
    uint32_t wanted = 0;     // Parts that make it whole.
    uint64_t successor = 0;  // Prefix of the block that the first prompt behind it went on with; 0: none yet.
    bool junction = false;   // Prompts part here: a newer tail does not take its place.
    std::vector<SlotId> slots;
    bool whole() const { return slots.size() == wanted; }
  };

  explicit TailTable(Random& random) : tails_(random) {}

  bool empty() const { return tails_.empty(); }
  size_t size() const { return tails_.size(); }
  bool IsWhole(const BlockHash& block) const {
    const Tail* const tail = Find(block);
    return tail != nullptr && tail->whole();
  }
  // Good until the next change; null: none.
  const Tail* Find(const BlockHash& block) const { return tails_.empty() ? nullptr : tails_.Find(block); }

  // One more part. False: the tail there has another number of parts, or all of its own; nothing was changed.
  bool Add(const BlockHash& block, SlotId slot, uint32_t wanted, bool junction);
  // Takes the tail out; its parts are the caller's to free. Empty when there is none.
  std::vector<SlotId> Take(const BlockHash& block);
  // A prompt with this next block has a newer tail. The parts that go first now; none where prompts part.
  absl::Span<const SlotId> Supersede(const BlockHash& block, uint64_t successor);

 private:
  BlockTable<Tail> tails_;
};

}  // namespace cistern
