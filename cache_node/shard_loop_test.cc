#include "cache_node/shard_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <future>

#include "cache_node/fake_transport.h"

namespace cistern {
namespace {

std::unique_ptr<ShardLoop> MakeLoop() {
  NodeShardOptions options;
  options.node_id = "node-1";
  options.ram_bytes = 8u << 20;
  options.cluster_key = ClusterKey::Generate();
  auto loop = ShardLoop::Create(std::move(options), std::make_unique<FakeTransport>(),
                                std::make_unique<BootClock>(), 1);
  EXPECT_TRUE(loop.ok()) << loop.status();
  return *std::move(loop);
}

// Runs on the shard's thread and comes back: proof that the loop has turned.
void RoundTrip(ShardLoop& loop) {
  std::promise<void> done;
  ASSERT_TRUE(loop.Post([&done](NodeShard&) { done.set_value(); }));
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(ShardLoop, RunsWhatIsPostedAndStopsWhenTold) {
  auto loop = MakeLoop();
  loop->Start();
  RoundTrip(*loop);
  loop->Stop();
  loop->Stop();
}

TEST(ShardLoop, F47_TellsWhenItTurnedLast) {
  auto loop = MakeLoop();
  loop->Start();
  BootClock clock;
  const Nanos before = clock.Now();
  RoundTrip(*loop);
  RoundTrip(*loop);
  EXPECT_GE(loop->last_poll(), before);
  // A task that does not end is seen by the age of the last turn, while stats are still to be had.
  std::promise<void> entered, leave;
  ASSERT_TRUE(loop->Post([&](NodeShard&) {
    entered.set_value();
    leave.get_future().wait();
  }));
  entered.get_future().wait();
  const Nanos stuck = loop->last_poll();
  EXPECT_EQ(loop->LatestStats().tiers.size(), 1u);
  EXPECT_EQ(loop->last_poll(), stuck);
  leave.set_value();
  loop->Stop();
}

TEST(ShardLoop, StatsFollowTheShard) {
  auto loop = MakeLoop();
  loop->Start();
  ASSERT_TRUE(loop->Post([](NodeShard& shard) { shard.SetIdentity(ClusterId{}, 5); }));
  loop->LatestStats();  // Asks.
  RoundTrip(*loop);
  EXPECT_EQ(loop->LatestStats().tiers.at(0).capacity_bytes, 8u << 20);
  loop->Stop();
}

TEST(ShardLoop, RefusesTooLittleRamByName) {
  NodeShardOptions options;
  options.ram_bytes = 1u << 20;
  const auto loop = ShardLoop::Create(std::move(options), std::make_unique<FakeTransport>(),
                                      std::make_unique<BootClock>(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(loop.status()));
}

}  // namespace
}  // namespace cistern
