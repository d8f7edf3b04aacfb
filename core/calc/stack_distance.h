#pragma once

#include <cstdint>
#include <vector>

namespace cistern {

// Exact LRU stack distances of entries with dense numbers: how many distinct entries were touched since an
// entry's own last touch, itself included. An LRU of at least that many slots still has it (Mattson). A tree
// of counts over time, O(log n) a call; time is renumbered when it runs out, so memory follows the number of
// entries, not of touches. One thread.
class StackDistance {
 public:
  // Entries 0 … n-1 exist from now on.
  void Grow(uint32_t entries) { time_of_.resize(entries, 0); }

  // Position on the stack, 1 for the entry touched last; 0 for one that was never touched.
  uint32_t Distance(uint32_t entry) const;
  void Touch(uint32_t entry);

 private:
  static constexpr uint32_t kTimesMin = 1024;

  void Add(uint32_t time, uint32_t delta);
  uint32_t CountUpTo(uint32_t time) const;
  void Renumber();

  std::vector<uint32_t> time_of_;   // Last touch, from 1; 0: never.
  std::vector<uint32_t> entry_at_;  // Who was touched then.
  std::vector<uint32_t> tree_;      // Fenwick tree: 1 where a time is some entry's last touch.
  uint32_t now_ = 0;
  uint32_t live_ = 0;  // Entries touched at least once.
};

}  // namespace cistern
