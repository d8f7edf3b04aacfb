#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace cistern {

// Keys of evicted entries, without bytes, each with 32 bits of its policy's. The oldest of all makes room:
// what is forgotten goes in the order in which it was evicted, so of a chain its end first, on every node
// alike (GhostTable, at half the memory, forgets here and there). A key is known by 32 bits of a mix of it:
// with n ghosts a stranger is taken for one with a chance of n / 2^32, which costs a wrong guess and no more.
// 16 bytes a ghost; those that never come take no memory. Owned by a policy; one thread; allocates once.
class GhostQueue {
 public:
  explicit GhostQueue(uint32_t ghosts);

  // Remembers a key with a value other than 0. Returns the value that it pushed out, or 0.
  uint32_t Push(uint64_t key, uint32_t value);
  bool Has(uint64_t key) const;
  // Forgets a key; returns its value, or 0.
  uint32_t Take(uint64_t key);
  uint32_t capacity() const { return capacity_; }
  uint64_t memory_bytes() const { return used_ * (sizeof(Ghost) + sizeof(Place)); }

 private:
  using Place = uint32_t;  // In ghosts_, from 1 on; 0 is none.
  struct Ghost {
    uint32_t tag;
    uint32_t value;  // 0: free.
    Place next;      // In its bucket.
  };
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }  // It came from calloc.
  };
  static uint32_t TagOf(uint64_t key);
  Place& BucketOf(uint32_t tag) const { return buckets_[uint64_t{tag} * capacity_ >> 32]; }
  Ghost& At(Place place) const { return ghosts_[place - 1]; }
  void Unlink(Place place);

  const uint32_t capacity_;
  uint64_t used_ = 0;  // Places that have had a ghost.
  Place oldest_ = 1;
  std::unique_ptr<Ghost[], Free> ghosts_;
  std::unique_ptr<Place[], Free> buckets_;  // First place of each.
};

}  // namespace cistern
