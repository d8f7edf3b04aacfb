#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace cistern {

// Keys of the last evicted blocks, without bytes: oldest out first. 20 bytes a ghost, paid as they come.
// Owned by a policy; one thread; allocates only while it grows to `capacity`.
class GhostRing {
 public:
  explicit GhostRing(uint32_t capacity) : capacity_(capacity) {}

  // Remembers a key with its run. When the ring is full the oldest ghost makes room; returns its run if it
  // was live.
  std::optional<uint32_t> Push(uint64_t key, uint32_t run);
  // Forgets a key; returns its run if it was there.
  std::optional<uint32_t> Take(uint64_t key);
  uint32_t live() const { return live_; }

 private:
  struct Ghost {
    uint64_t key;
    uint32_t run;   // kDead: taken.
    uint32_t next;  // In its bucket.
  };
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t& BucketOf(uint64_t key) { return buckets_[key & (buckets_.size() - 1)]; }
  void Unlink(uint32_t at);
  void GrowBuckets();

  uint32_t capacity_;
  uint32_t oldest_ = 0;  // Once full: the place that is overwritten next.
  uint32_t live_ = 0;
  std::vector<Ghost> ring_;
  std::vector<uint32_t> buckets_;  // A power of two of them, at least as many as ghosts.
};

}  // namespace cistern
