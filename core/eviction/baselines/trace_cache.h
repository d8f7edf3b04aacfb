#pragma once

#include <cstdint>
#include <memory>

namespace cistern {

// A cache as simulations compare it: whole blocks by number, one pool. Blocks of a request are used one by
// one, the deepest first. Subclasses are the simple policies that ours is measured against; nodes run none of
// them.
class TraceCache {
 public:
  virtual ~TraceCache() = default;
  virtual bool Has(uint32_t block) const = 0;
  // Touches a block that is here; else inserts it, room made first, unless the policy declines.
  virtual void Use(uint32_t block, uint32_t depth) = 0;
};

// capacity > 0; blocks: all numbers are below it.
std::unique_ptr<TraceCache> MakeFifo(uint32_t capacity, uint32_t blocks);
// First in, first out through a small queue (a tenth) for what is new and a main one for what was used again
// there or is remembered (as many ghosts as the main one holds); counters to 3.
std::unique_ptr<TraceCache> MakeS3Fifo(uint32_t capacity, uint32_t blocks);
// Fewest uses since it came; of equals the one used longest ago.
std::unique_ptr<TraceCache> MakeLfu(uint32_t capacity, uint32_t blocks);
// The same with age: what comes or is used stands above what was last dropped (cost and size are 1).
std::unique_ptr<TraceCache> MakeGdsf(uint32_t capacity, uint32_t blocks);
// LRU of what was seen before, ever.
std::unique_ptr<TraceCache> MakeSecondSighting(uint32_t capacity, uint32_t blocks);
// The longest time since the use before the last, remembered for ever; what was used once goes first.
std::unique_ptr<TraceCache> MakeLru2(uint32_t capacity, uint32_t blocks);

}  // namespace cistern
