// The hit path must not allocate once it is warm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "cache_node/shard_test_util.h"

namespace {
uint64_t allocations = 0;
}

// GCC pairs inlined calls of these and warns; out of line there is nothing to see.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cistern {
namespace {

// Encoded once, so that only the shard's own work is counted.
template <typename Message>
Bytes Encoded(const Message& message) {
  Bytes body;
  message.Encode(body);
  return body;
}

TEST(NodeShard, AllocatesNothingOnTheHitPathAfterWarmUp) {
  ShardWorld w(64u << 20);
  const PeerId peer = w.Connect();
  ChainRequest chain = w.Chain(w.Blocks(512), 65536);
  w.Store(peer, chain);
  w.transport.keep_frames = false;
  chain.plan_id = 1;
  const Bytes request = Encoded(chain);
  const Bytes read = Encoded(ReadRequest{.plan_id = 1, .parts = {1, 2, 3}});
  const Bytes renew = Encoded(RenewRequest{.plan_id = 1, .ttl_ms = 1000});
  const Bytes release = Encoded(IdList{.ids = {1}});
  const auto round = [&] {
    w.transport.DeliverRaw(peer, FrameType::kLookup, 1, request);
    w.transport.DeliverRaw(peer, FrameType::kPlan, 2, request);
    w.transport.DeliverRaw(peer, FrameType::kRead, 3, read);
    w.transport.DeliverRaw(peer, FrameType::kRenew, 4, renew);
    w.transport.DeliverRaw(peer, FrameType::kRelease, 0, release);
    w.transport.DeliverRaw(peer, FrameType::kPlan, 5, request, kFlagInline | kFlagOneShot);
    w.shard->Poll();
  };
  for (int i = 0; i < 10; ++i) round();
  const uint64_t before = allocations;
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(w.shard->counters().hit_blocks, 512u * 3 * 1010);
  EXPECT_EQ(w.shard->ram().leased_parts(), 0u);
}

}  // namespace
}  // namespace cistern
