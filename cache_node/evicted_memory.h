#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

// Remembers which blocks had to make room, so that a miss can say so. A fixed table of hash prefixes in which
// a later block takes an earlier one's place: it forgets, and is right in all it says but for one time in
// 2^48. Owner: RamTier. Thread: the shard's. Takes its memory with the first eviction.
class EvictedMemory {
 public:
  static constexpr size_t kBlocksMax = 65536;
  void Add(uint64_t prefix) {
    if (blocks_.empty()) blocks_.resize(kBlocksMax);
    blocks_[prefix % kBlocksMax] = prefix;
  }
  void Forget(uint64_t prefix) {
    if (Has(prefix)) blocks_[prefix % kBlocksMax] = 0;
  }
  bool Has(uint64_t prefix) const { return !blocks_.empty() && blocks_[prefix % kBlocksMax] == prefix; }

 private:
  std::vector<uint64_t> blocks_;
};

}  // namespace cistern
