#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"

namespace cistern {

// Which of many small numbers is due next. A binary heap that knows where each stands, so any may be moved or
// removed. Owner: a table of pooled things. One thread. Never allocates once it has held as many.
class DeadlineHeap {
 public:
  void Add(uint32_t id, Nanos at) {
    if (id >= place_.size()) place_.resize(size_t{id} + 1, kNowhere);
    CISTERN_CHECK(place_[id] == kNowhere);
    heap_.push_back({at, id});
    place_[id] = static_cast<uint32_t>(heap_.size() - 1);
    Up(heap_.size() - 1);
  }
  void Remove(uint32_t id) {
    const uint32_t at = place_[id];
    CISTERN_CHECK(at != kNowhere);
    Swap(at, heap_.size() - 1);
    heap_.pop_back();
    place_[id] = kNowhere;
    if (at < heap_.size()) {
      Up(at);
      Down(at);
    }
  }
  void Move(uint32_t id, Nanos to) {
    const uint32_t at = place_[id];
    CISTERN_CHECK(at != kNowhere);
    heap_[at].at = to;
    Up(at);
    Down(place_[id]);
  }
  bool Has(uint32_t id) const { return id < place_.size() && place_[id] != kNowhere; }
  bool empty() const { return heap_.empty(); }
  Nanos next() const { return heap_.empty() ? kNever : heap_[0].at; }
  uint32_t next_id() const { return heap_[0].id; }

 private:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  struct Item {
    Nanos at;
    uint32_t id;
  };
  void Swap(size_t a, size_t b) {
    if (a == b) return;
    std::swap(heap_[a], heap_[b]);
    place_[heap_[a].id] = static_cast<uint32_t>(a);
    place_[heap_[b].id] = static_cast<uint32_t>(b);
  }
  void Up(size_t at) {
    while (at > 0 && heap_[at].at < heap_[(at - 1) / 2].at) {
      Swap(at, (at - 1) / 2);
      at = (at - 1) / 2;
    }
  }
  void Down(size_t at) {
    for (;;) {
      size_t least = at;
      for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap_.size(); ++child) {
        if (heap_[child].at < heap_[least].at) least = child;
      }
      if (least == at) return;
      Swap(at, least);
      at = least;
    }
  }
  std::vector<Item> heap_;
  std::vector<uint32_t> place_;
};

}  // namespace cistern
