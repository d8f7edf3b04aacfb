#include "core/eviction/ghost_ring.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace cistern {

std::optional<uint32_t> GhostRing::Push(uint64_t key, uint32_t run) {
  CISTERN_CHECK(run != kDead);
  std::optional<uint32_t> pushed_out;
  uint32_t at = static_cast<uint32_t>(ring_.size());
  if (at < capacity_) {
    ring_.push_back({key, kDead, kNone});
    if (ring_.size() > buckets_.size()) GrowBuckets();
  } else {
    at = oldest_;
    oldest_ = oldest_ + 1 < capacity_ ? oldest_ + 1 : 0;
    if (ring_[at].run != kDead) {
      pushed_out = ring_[at].run;
      Unlink(at);
      --live_;
    }
  }
  uint32_t& bucket = BucketOf(key);
  ring_[at] = {key, run, std::exchange(bucket, at)};
  ++live_;
  return pushed_out;
}

std::optional<uint32_t> GhostRing::Take(uint64_t key) {
  if (buckets_.empty()) return std::nullopt;
  for (uint32_t at = BucketOf(key); at != kNone; at = ring_[at].next) {
    if (ring_[at].key != key) continue;
    Unlink(at);
    --live_;
    return std::exchange(ring_[at].run, kDead);
  }
  return std::nullopt;
}

void GhostRing::Unlink(uint32_t at) {
  uint32_t* link = &BucketOf(ring_[at].key);
  while (*link != at) link = &ring_[*link].next;
  *link = ring_[at].next;
}

void GhostRing::GrowBuckets() {
  buckets_.assign(std::max<size_t>(64, buckets_.size() * 2), kNone);
  for (uint32_t at = 0; at < ring_.size(); ++at) {
    if (ring_[at].run != kDead) ring_[at].next = std::exchange(BucketOf(ring_[at].key), at);
  }
}

}  // namespace cistern
