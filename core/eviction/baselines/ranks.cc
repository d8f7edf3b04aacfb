// Policies that drop the least of a rank: LFU, GDSF, LRU-2.
#include <set>
#include <tuple>
#include <vector>

#include "core/eviction/baselines/trace_cache.h"

namespace cistern {
namespace {

class Ranked : public TraceCache {
 public:
  Ranked(uint32_t capacity, uint32_t blocks) : capacity_(capacity), state_(blocks) {}
  bool Has(uint32_t block) const final { return state_[block].is_here; }
  void Use(uint32_t block, uint32_t /*depth*/) final {
    State& state = state_[block];
    if (state.is_here) {
      order_.erase({state.rank, state.used, block});
    } else {
      if (order_.size() == capacity_) {
        const uint32_t victim = std::get<2>(*order_.begin());
        order_.erase(order_.begin());
        state_[victim].is_here = false;
        OnDrop(state_[victim]);
      }
      state.uses = 0;
      state.is_here = true;
    }
    ++state.uses;
    state.rank = RankOf(state, ++now_);
    state.used = now_;
    order_.insert({state.rank, state.used, block});
  }

 protected:
  struct State {
    bool is_here = false;
    uint64_t uses = 0;  // Since it came.
    uint64_t rank = 0;
    uint64_t used = 0;  // When last; 0: never.
  };
  // state.used is still the use before this one.
  virtual uint64_t RankOf(const State& state, uint64_t now) const = 0;
  virtual void OnDrop(const State& /*victim*/) {}

 private:
  const uint32_t capacity_;
  std::vector<State> state_;
  std::set<std::tuple<uint64_t, uint64_t, uint32_t>> order_;
  uint64_t now_ = 0;
};

class Lfu final : public Ranked {
 public:
  using Ranked::Ranked;

 private:
  uint64_t RankOf(const State& state, uint64_t /*now*/) const override { return state.uses; }
};

class Gdsf final : public Ranked {
 public:
  using Ranked::Ranked;

 private:
  uint64_t RankOf(const State& state, uint64_t /*now*/) const override { return floor_ + state.uses; }
  void OnDrop(const State& victim) override { floor_ = victim.rank; }
  uint64_t floor_ = 0;
};

class Lru2 final : public Ranked {
 public:
  using Ranked::Ranked;

 private:
  uint64_t RankOf(const State& state, uint64_t /*now*/) const override { return state.used; }
};

}  // namespace

std::unique_ptr<TraceCache> MakeLfu(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<Lfu>(capacity, blocks);
}
std::unique_ptr<TraceCache> MakeGdsf(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<Gdsf>(capacity, blocks);
}
std::unique_ptr<TraceCache> MakeLru2(uint32_t capacity, uint32_t blocks) {
  return std::make_unique<Lru2>(capacity, blocks);
}

}  // namespace cistern
