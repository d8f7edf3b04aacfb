// Policies that are queues: FIFO, S3-FIFO, second sighting.
#include <algorithm>
#include <deque>
#include <vector>

#include "core/eviction/baselines/trace_cache.h"
#include "core/eviction/link_list.h"

namespace cistern {
namespace {

class Fifo final : public TraceCache {
 public:
  Fifo(uint32_t capacity, uint32_t blocks) : capacity_(capacity), is_here_(blocks) {}
  bool Has(uint32_t block) const override { return is_here_[block]; }
  void Use(uint32_t block, uint32_t /*depth*/) override {
    if (is_here_[block]) return;
    if (queue_.size() == capacity_) {
      is_here_[queue_.front()] = false;
      queue_.pop_front();
    }
    queue_.push_back(block);
    is_here_[block] = true;
  }

 private:
  const uint32_t capacity_;
  std::vector<bool> is_here_;
  std::deque<uint32_t> queue_;
};

class S3Fifo final : public TraceCache {
 public:
  S3Fifo(uint32_t capacity, uint32_t blocks)
      : small_max_(std::max(1u, capacity / 10)),
        main_max_(capacity - std::min(capacity, small_max_)),
        state_(blocks),
        links_(blocks) {}
  bool Has(uint32_t block) const override { return state_[block].is_here; }
  void Use(uint32_t block, uint32_t /*depth*/) override {
    State& state = state_[block];
    if (state.is_here) {
      state.uses = std::min(state.uses + 1, kUsesCounted);
      return;
    }
    while (small_.size() + main_.size() >= small_max_ + main_max_) Evict();
    const bool remembered = links_.IsLinked(block);
    if (remembered) ghosts_.Remove(links_, block);
    state.is_here = true;
    state.uses = 0;
    (remembered ? main_ : small_).push_back(block);
  }

 private:
  static constexpr int kUsesCounted = 3;
  static constexpr int kUsesToStay = 1;
  struct State {
    bool is_here = false;
    int uses = 0;
  };
  void Evict() {
    if (small_.size() >= small_max_ || main_.empty()) {
      EvictSmall();
    } else {
      EvictMain();
    }
  }
  void EvictSmall() {
    while (!small_.empty()) {
      const uint32_t block = small_.front();
      small_.pop_front();
      State& state = state_[block];
      if (state.uses >= kUsesToStay) {
        state.uses = 0;
        main_.push_back(block);
        if (main_.size() > main_max_) return EvictMain();
        continue;
      }
      state.is_here = false;
      Remember(block);
      return;
    }
  }
  void EvictMain() {
    while (!main_.empty()) {
      const uint32_t block = main_.front();
      main_.pop_front();
      State& state = state_[block];
      if (state.uses > 0) {
        --state.uses;
        main_.push_back(block);
        continue;
      }
      state.is_here = false;
      return;
    }
  }
  void Remember(uint32_t block) {
    if (ghosts_.size() == main_max_) ghosts_.Remove(links_, ghosts_.oldest());
    if (main_max_ > 0) ghosts_.PushNewest(links_, block);
  }

  const uint32_t small_max_, main_max_;
  std::vector<State> state_;
  std::deque<uint32_t> small_, main_;
  LinkTable links_;
  LinkList ghosts_;
};

class SecondSighting final : public TraceCache {
 public:
  SecondSighting(uint32_t capacity, uint32_t blocks)
      : capacity_(capacity), links_(blocks), was_seen_(blocks) {}
  bool Has(uint32_t block) const override { return links_.IsLinked(block); }
  void Use(uint32_t block, uint32_t /*depth*/) override {
    if (Has(block)) {
      order_.Remove(links_, block);
    } else if (!was_seen_[block]) {
      was_seen_[block] = true;
      return;
    } else if (order_.size() == capacity_) {
      order_.Remove(links_, order_.oldest());
    }
    order_.PushNewest(links_, block);
  }

 private:
  const uint32_t capacity_;
  LinkTable links_;
  LinkList order_;
  std::vector<bool> was_seen_;
};

}  // namespace

std::unique_ptr<TraceCache> MakeFifo(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<Fifo>(capacity, blocks);
}
std::unique_ptr<TraceCache> MakeS3Fifo(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<S3Fifo>(capacity, blocks);
}
std::unique_ptr<TraceCache> MakeSecondSighting(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<SecondSighting>(capacity, blocks);
}

}  // namespace cistern
