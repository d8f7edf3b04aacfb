// What the nodes' policies cost a part, by the number of parts: a hit, and a put into a full pool; and what
// they keep of each.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/eviction/reuse_model.h"
#include "core/eviction_policy.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint32_t kChain = 64;      // Blocks of a conversation.
constexpr uint32_t kNewBlocks = 16;  // Of a request that has to be stored.

// A full pool of chains. Slots are given in order, as a young node gives them.
struct FullPool {
  FullPool(const std::string& name, uint32_t entries)
      : policy(*MakeEvictionPolicy(name, entries)), key_in(entries) {
    chains.resize(entries / kChain);
    EntryId next = 0;
    for (std::vector<EntryId>& chain : chains) {
      for (uint32_t b = 0; b < kChain; ++b) chain.push_back(next++);
      Store(chain);
    }
  }
  void Store(const std::vector<EntryId>& chain) {
    keys.clear();
    for (size_t b = 0; b < chain.size(); ++b) keys.push_back(random.Next());
    const UseId use = policy->Begin({.tick = tick += 8, .here = {}, .missing = keys});
    for (size_t b = chain.size(); b-- > 0;) {
      key_in[chain[b]] = keys[b];
      policy->Insert(use, chain[b], {.key = keys[b], .depth = static_cast<uint32_t>(b)});
    }
  }
  std::unique_ptr<EvictionPolicy> policy;
  std::vector<uint64_t> key_in;  // By slot.
  std::vector<std::vector<EntryId>> chains;
  std::vector<uint64_t> keys;
  Random random{1};
  PolicyTick tick = 0;
};

std::string NameOf(int64_t policy) { return kNodePolicies[static_cast<size_t>(policy)]; }

void Hit(benchmark::State& state) {
  FullPool pool(NameOf(state.range(0)), static_cast<uint32_t>(state.range(1)));
  for (auto _ : state) {
    const std::vector<EntryId>& chain = pool.chains[pool.random.Below(pool.chains.size())];
    const UseId use = pool.policy->Begin({.tick = pool.tick += 8, .here = chain, .missing = {}});
    for (uint32_t b = kChain; b-- > 0;) pool.policy->Touch(use, chain[b], b);
  }
  state.SetLabel(NameOf(state.range(0)));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kChain);
  state.counters["bytes_a_part"] =
      static_cast<double>(pool.policy->memory_bytes()) / static_cast<double>(state.range(1));
}

void Put(benchmark::State& state) {
  FullPool pool(NameOf(state.range(0)), static_cast<uint32_t>(state.range(1)));
  std::vector<EntryId> slots;
  for (auto _ : state) {
    slots.clear();
    for (uint32_t b = 0; b < kNewBlocks; ++b) {
      const EntryId slot = *pool.policy->Victim([](EntryId) { return true; });
      pool.policy->Evicted(slot, pool.key_in[slot]);
      slots.push_back(slot);
    }
    pool.Store(slots);
  }
  state.SetLabel(NameOf(state.range(0)));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kNewBlocks);
  state.counters["bytes_a_part"] =
      static_cast<double>(pool.policy->memory_bytes()) / static_cast<double>(state.range(1));
}

// By their place in kNodePolicies.
BENCHMARK(Hit)->ArgsProduct({{0, 1, 2}, {100'000, 1'000'000, 10'000'000}});
BENCHMARK(Put)->ArgsProduct({{0, 1, 2}, {100'000, 1'000'000, 10'000'000}});

// What learning does between requests, once in 16 to 256 of them.
void ModelUpdate(benchmark::State& state) {
  ReuseModel model;
  PolicyTick now = 0;
  for (auto _ : state) model.Update(now += 100, .98f, 1);
}
BENCHMARK(ModelUpdate)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cistern
