#include "core/eviction/ghost_queue.h"

#include <algorithm>

#include "core/check.h"

namespace cistern {
namespace {

// Zeroed by the system page by page, as ghosts come.
template <typename T>
T* Zeroed(uint32_t count) {
  void* memory = std::calloc(count, sizeof(T));
  CISTERN_CHECK(memory != nullptr);
  return static_cast<T*>(memory);
}

}  // namespace

GhostQueue::GhostQueue(uint32_t ghosts)
    : capacity_(std::max(ghosts, 1u)),
      ghosts_(Zeroed<Ghost>(capacity_)),
      buckets_(Zeroed<Place>(capacity_)) {}

uint32_t GhostQueue::TagOf(uint64_t key) {
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93;
  key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93;
  return static_cast<uint32_t>(key >> 32);
}

uint32_t GhostQueue::Push(uint64_t key, uint32_t value) {
  CISTERN_CHECK(value != 0);
  const Place place = oldest_;
  oldest_ = oldest_ == capacity_ ? 1 : oldest_ + 1;
  Ghost& ghost = At(place);
  const uint32_t pushed_out = ghost.value;
  if (pushed_out != 0) Unlink(place);
  used_ = std::max<uint64_t>(used_, place);
  const uint32_t tag = TagOf(key);
  Place& first = BucketOf(tag);
  ghost = {.tag = tag, .value = value, .next = first};
  first = place;
  return pushed_out;
}

bool GhostQueue::Has(uint64_t key) const {
  const uint32_t tag = TagOf(key);
  for (Place place = BucketOf(tag); place != 0; place = At(place).next) {
    if (At(place).tag == tag) return true;
  }
  return false;
}

uint32_t GhostQueue::Take(uint64_t key) {
  const uint32_t tag = TagOf(key);
  for (Place place = BucketOf(tag); place != 0; place = At(place).next) {
    if (At(place).tag != tag) continue;
    const uint32_t value = At(place).value;
    Unlink(place);
    return value;
  }
  return 0;
}

void GhostQueue::Unlink(Place place) {
  Ghost& ghost = At(place);
  Place* link = &BucketOf(ghost.tag);
  while (*link != place) link = &At(*link).next;
  *link = ghost.next;
  ghost = {};
}

}  // namespace cistern
