// What a shard costs without a wire: LOOKUP and PLAN of long prefixes, OFFER + PUT bookkeeping.
#include <benchmark/benchmark.h>

#include <vector>

#include "cache_node/shard_test_util.h"

namespace cistern {
namespace {

constexpr uint32_t kBlocks = 4096;

// `chains` chains of kBlocks blocks are stored and asked for in turn: with many the index does not fit any
// cache.
struct World {
  explicit World(int chains) : w(static_cast<uint64_t>(chains) * kBlocks * 4096 + (64u << 20)) {
    peer = w.Connect();
    for (int i = 0; i < chains; ++i) {
      ChainRequest chain = w.Chain(w.Blocks(kBlocks), 4096);
      for (uint32_t first = 0; first < kBlocks; first += 1024) {
        w.Store(peer, w.Chain({chain.blocks.begin() + first, chain.blocks.begin() + first + 1024}, 4096));
      }
      chain.plan_id = 1;
      requests.emplace_back();
      chain.Encode(requests.back());
    }
    w.transport.sent.clear();
    w.transport.keep_frames = false;
    release.ids = {1};
    release.Encode(release_body);
  }
  const Bytes& Next() { return requests[at++ % requests.size()]; }
  ShardWorld w;
  PeerId peer = 0;
  std::vector<Bytes> requests;
  IdList release;
  Bytes release_body;
  size_t at = 0;
};

void Lookup4096(benchmark::State& state) {
  World world(static_cast<int>(state.range(0)));
  for (auto _ : state) world.w.transport.DeliverRaw(world.peer, FrameType::kLookup, 1, world.Next());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kBlocks);
  if (world.w.shard->counters().miss_blocks != 0) state.SkipWithError("missed");
}
BENCHMARK(Lookup4096)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);

void PlanAndRelease4096(benchmark::State& state) {
  World world(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    world.w.transport.DeliverRaw(world.peer, FrameType::kPlan, 1, world.Next());
    world.w.transport.DeliverRaw(world.peer, FrameType::kRelease, 0, world.release_body);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kBlocks);
}
BENCHMARK(PlanAndRelease4096)->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);

void PlanAndRelease1(benchmark::State& state) {
  World world(1);
  ChainRequest chain = world.w.Chain(world.w.Blocks(1), 65536);
  world.w.transport.keep_frames = true;
  world.w.Store(world.peer, chain);
  world.w.transport.sent.clear();
  world.w.transport.keep_frames = false;
  chain.plan_id = 1;
  Bytes request;
  chain.Encode(request);
  for (auto _ : state) {
    world.w.transport.DeliverRaw(world.peer, FrameType::kPlan, 1, request);
    world.w.transport.DeliverRaw(world.peer, FrameType::kRelease, 0, world.release_body);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(PlanAndRelease1)->Unit(benchmark::kNanosecond);

// Reserve, publish and the eviction that makes room, in a full arena.
void PutWithEviction(benchmark::State& state) {
  SimClock clock;
  Random random(1);
  NodeCounters counters;
  const uint64_t ram = 256u << 20;
  auto region = MemoryRegion::Create("bench", SlabPool::RegionBytes(ram), true);
  RamTier tier(*region, ram, kEvictionPolicyDefault, random, counters);
  PartKey key;
  const LayoutId layout = LayoutNamed(1);
  for (auto _ : state) {
    for (size_t i = 0; i < 32; i += 8) StoreLe<uint64_t>(key.block.hash.bytes.data() + i, random.Next());
    SlotId slot = kNoSlot;
    tier.Reserve(4096, 1, slot);
    tier.Publish(slot, key, layout, 4096, 0, 0, 1);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(PutWithEviction);

}  // namespace
}  // namespace cistern
