#include <sched.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cache_node/node_shard.h"
#include "client/core/client_core.h"
#include "client/window.h"
#include "core/chain.h"
#include "core/random.h"
#include "core/ticket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/fabric.h"
#include "transport/ucx/rdma_of_this_machine.h"

// A shard and a client's core over a real fabric: bytes are read out of the arena by gets and checked, leases
// and tickets end, the node sleeps or dies in the middle.
namespace cistern {
namespace {

constexpr uint32_t kPartBytes = 64 << 10;
constexpr int64_t kUnixNow = 1'700'000'000;
constexpr int64_t kTicketLife = 3600;

// One node or client process, as far as this test needs one.
struct Side {
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<NodeShard> shard;
  std::unique_ptr<PutWindow> window;
  std::unique_ptr<ClientCore> core;
};

class FabricCluster : public ::testing::TestWithParam<FabricUnderTest> {
 protected:
  void SetUp() override {
    cluster_.bytes[0] = 7;
    node_ = MakeNode();
    client_ = MakeClient(/*window_bytes=*/8 << 20);
    for (uint32_t i = 0; i < 64; ++i) {
      BlockKey key;
      for (size_t b = 0; b < key.hash.bytes.size(); ++b)
        key.hash.bytes[b] = static_cast<uint8_t>(i * 31 + b * 7);
      key.fingerprint = i + 1;
      keys_.push_back(key);
    }
  }
  void TearDown() override {
    client_.core.reset();
    if (node_.shard != nullptr) node_.fabric->RemoveMemory(node_.shard->arena().data());
    node_.shard.reset();
  }

  std::unique_ptr<Fabric> Open() {
    FabricOptions options;
    options.transports = GetParam().transports;
    auto domain = OpenFabric(options);
    EXPECT_TRUE(domain.ok()) << domain.status();
    auto fabric = MakeFabric(*domain, clock_, FabricThreads::kOne);
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    return *std::move(fabric);
  }
  Side MakeNode() {
    Side side;
    side.fabric = Open();
    NodeShardOptions options;
    options.node_id = "node-1";
    options.ram_bytes = 16 << 20;
    options.cluster_key = key_;
    options.cluster = cluster_;
    options.incarnation = 3;
    options.unix_now = [] { return kUnixNow; };
    side.shard = *NodeShard::Create(options, clock_, *side.fabric, random_);
    const MemoryRegion& arena = side.shard->arena();
    EXPECT_TRUE(side.fabric->AddMemory(arena.data(), arena.bytes(), side.shard->ram().slab_bytes()).ok());
    const auto bound = side.fabric->Listen("ucx:" + GetParam().host + ":0");
    EXPECT_TRUE(bound.ok()) << bound.status();
    address_ = bound->substr(4);
    return side;
  }
  Side MakeClient(size_t window_bytes) {
    Side side;
    side.fabric = Open();
    side.window = std::make_unique<PutWindow>(*PutWindow::Create(window_bytes));
    ClientCoreOptions options;
    options.transport = "ucx";
    options.fabric = true;
    options.window = side.window.get();
    options.lease_ttl = 10 * kSecond;
    options.default_deadline = 20 * kSecond;
    side.core = std::make_unique<ClientCore>(options, clock_, *side.fabric, random_);
    Ticket ticket;
    ticket.cluster = cluster_;
    ticket.rights = kRightRead | kRightWrite;
    ticket.expires_unix_s = kUnixNow + kTicketLife;
    side.core->SetCredentials(SealTicket(ticket, key_), {}, cluster_);
    ClusterMap map;
    map.cluster = cluster_;
    map.epoch = 1;
    NodeEntry entry;
    entry.id = "node-1";
    entry.incarnation = 3;
    entry.state = NodeState::kActive;
    entry.shards = {ShardAddress{.tcp = "", .unix_name = "", .fabric = address_}};
    map.nodes = {entry};
    side.core->SetMap(map);
    return side;
  }

  // node_turns: how often the node's thread gets to run; 0: it sleeps.
  template <typename Done>
  bool Until(Done&& done, int node_turns = 1, int turns_max = 200'000) {
    for (int i = 0; i < turns_max; ++i) {
      if (done()) return true;
      bool moved = client_.core->Poll();
      if (node_.shard != nullptr && node_turns > 0) moved |= node_.shard->Poll();
      if (!moved) sched_yield();  // UCX has a thread that makes connections.
    }
    return done();
  }
  ChainView Chain(uint32_t blocks) const {
    ChainView chain;
    chain.layout.bytes[0] = 1;
    chain.part_bytes = kPartBytes;
    chain.blocks = absl::MakeConstSpan(keys_).subspan(0, blocks);
    return chain;
  }
  CallSpec Spec(uint32_t blocks) const { return {Chain(blocks), absl::MakeConstSpan(&coord_, 1), 0, false}; }
  static std::vector<std::byte> Content(uint32_t blocks) {
    std::vector<std::byte> bytes(size_t{blocks} * kPartBytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 17 + (i >> 13) * 5);
    return bytes;
  }
  void Store(uint32_t blocks) {
    const std::vector<std::byte> content = Content(blocks);
    std::vector<ConstSegment> segments;
    std::vector<uint32_t> ends;
    for (uint32_t i = 0; i < blocks; ++i) {
      segments.push_back({content.data() + size_t{i} * kPartBytes, kPartBytes});
      ends.push_back(i + 1);
    }
    bool done = false;
    client_.core->Store(Spec(blocks), 0, {segments, ends}, [&](const StoreOutcome& outcome) {
      done = true;
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      for (const PartResult r : outcome.pages) EXPECT_EQ(r, PartResult::kOk) << PartResultName(r);
    });
    ASSERT_TRUE(Until([&] { return done; }));
  }
  void Plan(uint32_t blocks) {
    bool done = false;
    client_.core->Plan(Spec(blocks), [&](const PlanOutcome& outcome) {
      done = true;
      EXPECT_EQ(outcome.blocks, blocks) << PartResultName(outcome.stopped_by);
      plan_ = outcome.plan;
    });
    ASSERT_TRUE(Until([&] { return done; }));
  }
  struct Loaded {
    bool done = false;
    std::vector<PartResult> pages;
    uint32_t ok = 0;
  };
  void BeginLoad(std::byte* to, uint32_t first, uint32_t count, Nanos deadline, Loaded& out) {
    std::vector<Segment> segments;
    std::vector<uint32_t> ends;
    for (uint32_t i = 0; i < count; ++i) {
      segments.push_back({to + size_t{i} * kPartBytes, kPartBytes});
      ends.push_back(i + 1);
    }
    client_.core->Load(plan_, first, {segments, ends}, {}, deadline, [&out](const LoadOutcome& outcome) {
      out.done = true;
      out.pages.assign(outcome.pages.begin(), outcome.pages.end());
      out.ok = static_cast<uint32_t>(std::count(out.pages.begin(), out.pages.end(), PartResult::kOk));
    });
  }

  SimClock clock_;
  Random random_{5};
  ClusterKey key_ = ClusterKey::Generate();
  ClusterId cluster_;
  std::string address_;
  Side node_, client_;
  std::vector<BlockKey> keys_;
  const PartCoord coord_{};
  PlanHandle plan_ = 0;
};

TEST_P(FabricCluster, StoresAndLoads) {
  const bool gets = GetParam().gets;
  Store(32);
  EXPECT_EQ(node_.shard->counters().put_bytes, 32u * kPartBytes);
  Plan(32);
  std::vector<std::byte> ordinary(32 * kPartBytes);
  Loaded loaded;
  BeginLoad(ordinary.data(), 0, 32, 0, loaded);
  ASSERT_TRUE(Until([&] { return loaded.done; }));
  EXPECT_EQ(loaded.ok, 32u);
  EXPECT_EQ(ordinary, Content(32));
  auto* window = static_cast<std::byte*>(client_.window->Allocate(4 * kPartBytes));
  ASSERT_NE(window, nullptr);
  Loaded direct;
  BeginLoad(window, 8, 4, 0, direct);
  ASSERT_TRUE(Until([&] { return direct.done; }));
  EXPECT_EQ(direct.ok, 4u);
  EXPECT_TRUE(std::equal(window, window + 4 * kPartBytes, Content(32).begin() + 8 * kPartBytes));
  EXPECT_EQ(client_.fabric->counters().at("ucx_direct_get_bytes_total"), gets ? 4u * kPartBytes : 0u);
  EXPECT_EQ(node_.fabric->counters().at("ucx_direct_get_bytes_total"), gets ? 32u * kPartBytes : 0u);
  EXPECT_EQ(node_.shard->counters().inline_bytes, gets ? 0u : 36u * kPartBytes);
  const auto rows = client_.core->PeerRows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].path.kind, PathKind::kUcx);
  EXPECT_THAT(rows[0].why, ::testing::HasSubstr("both sides have a fabric address"));
}

// The promise of one-sided reads: the node's thread does not run at all. Where UCX has to emulate them
// nothing may hang instead.
TEST_P(FabricCluster, GetsGoOnWhileTheNodeSleeps) {
  Store(16);
  Plan(16);
  std::vector<std::byte> to(16 * kPartBytes, std::byte{0xee});
  for (int round = 0; round < 5; ++round) {
    Loaded loaded;
    BeginLoad(to.data(), 0, 16, 5 * kSecond, loaded);
    const bool ended = Until([&] { return loaded.done; }, /*node_turns=*/0, /*turns_max=*/20'000);
    if (GetParam().gets) {
      ASSERT_TRUE(ended);
      EXPECT_EQ(loaded.ok, 16u);
      EXPECT_EQ(to, Content(16));
      continue;
    }
    EXPECT_FALSE(ended) << "bytes came from a node that slept";
    clock_.Advance(6 * kSecond);
    ASSERT_TRUE(Until([&] { return loaded.done; }, 0));
    EXPECT_EQ(loaded.ok, 0u);
    std::fill(to.begin(), to.end(), std::byte{0x11});  // The memory is the caller's again.
    for (int i = 0; i < 2000; ++i) Until([] { return false; }, 1, 1);
    EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](std::byte b) { return b == std::byte{0x11}; }));
    return;
  }
}

TEST_P(FabricCluster, F30_AfterTheLeaseNothingCountsWhateverTheBytes) {
  Store(8);
  Plan(8);
  clock_.Advance(11 * kSecond);  // The client's lease is over, whether or not the node has noticed.
  std::vector<std::byte> to(8 * kPartBytes);
  Loaded loaded;
  BeginLoad(to.data(), 0, 8, 0, loaded);
  ASSERT_TRUE(Until([&] { return loaded.done; }));
  EXPECT_EQ(loaded.ok, 0u);
  for (const PartResult r : loaded.pages) EXPECT_NE(r, PartResult::kOk);
  EXPECT_EQ(node_.shard->leases().plans(), 0u) << "the node's lease did not end by itself";
}

TEST_P(FabricCluster, AnEndedTicketEndsEndpointAndLeases) {
  Store(8);
  Plan(8);
  EXPECT_EQ(node_.shard->peers(), 1u);
  clock_.Advance((kTicketLife + kTicketSkewSeconds + 1) * kSecond);
  ASSERT_TRUE(Until([&] { return node_.shard->peers() == 0; }));
  EXPECT_EQ(node_.shard->counters().tickets_expired, 1u);
  ASSERT_TRUE(Until([&] { return client_.core->PeerRows()[0].state != "up"; }));
  std::vector<std::byte> to(8 * kPartBytes);
  Loaded loaded;
  BeginLoad(to.data(), 0, 8, kSecond, loaded);
  ASSERT_TRUE(Until([&] { return loaded.done; }));
  EXPECT_EQ(loaded.ok, 0u);
  EXPECT_EQ(node_.fabric->counters().at("ucx_endpoints"), 0u);
}

TEST_P(FabricCluster, F25_NodeDiesInTheMiddleAndEveryPageIsTold) {
  Store(64);
  Plan(64);
  std::vector<std::byte> to(64 * kPartBytes, std::byte{0xee});
  Loaded loaded;
  BeginLoad(to.data(), 0, 64, 5 * kSecond, loaded);
  Until([&] { return to[0] != std::byte{0xee}; }, 1, 100);
  node_.fabric->RemoveMemory(node_.shard->arena().data());
  node_.shard.reset();
  node_.fabric.reset();
  ASSERT_TRUE(Until([&] {
    if (!loaded.done) clock_.Advance(kMillisecond);
    return loaded.done;
  }));
  ASSERT_EQ(loaded.pages.size(), 64u);
  const std::vector<std::byte> content = Content(64);
  for (uint32_t i = 0; i < 64; ++i) {
    const bool right = std::equal(to.begin() + i * kPartBytes, to.begin() + (i + 1) * kPartBytes,
                                  content.begin() + i * kPartBytes);
    EXPECT_TRUE(right || loaded.pages[i] != PartResult::kOk) << i;
  }
}

TEST_P(FabricCluster, ADeadlineCostsOnlyItsOwnCall) {
  Store(64);
  Plan(64);
  std::vector<std::byte> mine(32 * kPartBytes, std::byte{0xee}), other(32 * kPartBytes);
  Loaded first, second;
  BeginLoad(mine.data(), 0, 32, 100 * kMillisecond, first);
  BeginLoad(other.data(), 32, 32, 9 * kSecond, second);
  clock_.Advance(150 * kMillisecond);  // Not long enough for silence to look like death.
  ASSERT_TRUE(Until([&] { return first.done; }, /*node_turns=*/0));
  std::fill(mine.begin(), mine.end(), std::byte{0x11});
  ASSERT_TRUE(Until([&] { return second.done; }));
  EXPECT_EQ(second.ok, 32u) << "a sibling's read was lost";
  EXPECT_TRUE(std::all_of(mine.begin(), mine.end(), [](std::byte b) { return b == std::byte{0x11}; }));
}

std::vector<FabricUnderTest> Kinds() {
  std::vector<FabricUnderTest> kinds = {{"tcp", "tcp"}};
  AddRc(kinds);
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Ucx, FabricCluster, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace cistern
