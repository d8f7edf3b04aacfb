#include "cache_node/registrar.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "router/service_fixture.h"

namespace cistern {
namespace {

using testing::HasSubstr;

// What a node has heard from its registrar.
struct Heard {
  std::vector<Registration> registrations;
  std::vector<ClusterMap> maps;
  std::vector<absl::Status> refusals;
  std::vector<absl::Status> troubles;
};

// One node process, as far as the router can tell.
class TestNode {
 public:
  TestNode(const std::string& router, const ClusterKey& key, const std::string& id,
           std::optional<ClusterId> cluster = std::nullopt, const std::string& place = "boot/1:2",
           const std::string& address = "127.0.0.1:4000", Nanos say_every = 0)
      : registrar_(Options(router, key, id, cluster, place, address, say_every), Callbacks()) {
    registrar_.Start();
  }
  Registrar& registrar() { return registrar_; }
  Watched<Heard>& heard() { return heard_; }
  uint64_t incarnation() {
    const absl::StatusOr<Registration> registration = registrar_.WaitRegistered(kTestPatience);
    EXPECT_TRUE(registration.ok()) << registration.status();
    return registration.ok() ? registration->incarnation : 0;
  }
  bool WaitNodes(size_t active) {
    return heard_.WaitUntil([active](const Heard& heard) {
      size_t count = 0;
      if (!heard.maps.empty()) {
        for (const NodeEntry& node : heard.maps.back().nodes) count += node.state == NodeState::kActive;
      }
      return count == active;
    });
  }
  // Each report is one heartbeat that was sent.
  bool WaitReports(uint64_t more) {
    const uint64_t wanted = reports_.Get() + more;
    return reports_.WaitUntil([wanted](uint64_t n) { return n >= wanted; });
  }

 private:
  static RegistrarOptions Options(const std::string& router, const ClusterKey& key, const std::string& id,
                                  std::optional<ClusterId> cluster, const std::string& place,
                                  const std::string& address, Nanos say_every) {
    RegistrarOptions options;
    options.router = router;
    options.node_id = id;
    options.key = key;
    options.expected_cluster = cluster;
    options.ram_bytes = uint64_t{1} << 30;
    options.place = place;
    options.shards = {{address, absl::StrCat("cistern-", id), ""}};
    options.backoff_min = 5 * kMillisecond;
    options.backoff_max = 50 * kMillisecond;
    options.trouble_say_every = say_every;
    return options;
  }
  RegistrarCallbacks Callbacks() {
    RegistrarCallbacks callbacks;
    callbacks.report = [this] {
      reports_.Change([](uint64_t& n) { ++n; });
      NodeReport report;
      report.stats.hit_blocks = 42;
      report.shard_last_poll_ms_ago = {3};
      return report;
    };
    callbacks.on_registered = [this](const Registration& r) {
      heard_.Change([&](Heard& h) { h.registrations.push_back(r); });
    };
    callbacks.on_map = [this](const ClusterMap& m) { heard_.Change([&](Heard& h) { h.maps.push_back(m); }); };
    callbacks.on_trouble = [this](const absl::Status& s) {
      heard_.Change([&](Heard& h) { h.troubles.push_back(s); });
    };
    callbacks.on_refused = [this](const absl::Status& s) {
      heard_.Change([&](Heard& h) { h.refusals.push_back(s); });
    };
    return callbacks;
  }

  Watched<Heard> heard_;
  Watched<uint64_t> reports_;
  Registrar registrar_;  // Last: its thread uses what is above.
};

class RegistrarTest : public ServiceFixture {
 protected:
  void SetUp() override { StartRouter(); }
};

TEST_F(RegistrarTest, RegistersAndFollowsTheMap) {
  TestNode one(address(), key_, "node-1");
  ASSERT_TRUE(one.WaitNodes(1));
  TestNode two(address(), key_, "node-2", cluster_);
  EXPECT_GT(two.incarnation(), one.incarnation());
  EXPECT_TRUE(one.WaitNodes(2));  // A heartbeat brought it.
  EXPECT_EQ(one.heard().Get().registrations.size(), 1u);
  EXPECT_TRUE(one.registrar().last_error().ok());
}

TEST_F(RegistrarTest, GoesOnUnderTheSameIncarnationWhenTheRouterDiesAndReturns) {
  TestNode node(address(), key_, "node-1");
  const uint64_t incarnation = node.incarnation();
  StopRouter();
  ASSERT_TRUE(node.WaitReports(2));  // It tries.
  StartRouter();
  const uint64_t before = node.registrar().heartbeats_ok();
  ASSERT_TRUE(node.WaitReports(3));
  EXPECT_GT(node.registrar().heartbeats_ok(), before);
  EXPECT_EQ(node.registrar().registrations(), 1u);  // The router has kept its state.
  EXPECT_EQ(node.incarnation(), incarnation);
}

TEST_F(RegistrarTest, RegistersAgainByItselfWhenTheRouterHasForgottenIt) {
  TestNode node(address(), key_, "node-1");
  const uint64_t incarnation = node.incarnation();
  StopRouter();
  store_ = MemoryStateStore();
  RouterConfig config;
  config.cluster = cluster_;
  StartRouter({}, config);
  ASSERT_TRUE(node.WaitReports(2));
  EXPECT_TRUE(node.heard().WaitUntil([](const Heard& heard) { return heard.maps.size() >= 2; }));
  EXPECT_EQ(node.registrar().registrations(), 2u);
  EXPECT_EQ(node.incarnation(), incarnation);  // The process is the same.
  EXPECT_EQ(node.heard().Get().registrations.size(), 1u);
}

TEST_F(RegistrarTest, AWrongKeyOrClusterEndsItWithTheReason) {
  TestNode stranger(address(), ClusterKey::Generate(), "node-1");
  const absl::Status wrong_key = stranger.registrar().WaitRegistered(kTestPatience).status();
  EXPECT_EQ(wrong_key.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(wrong_key.message()), HasSubstr("--cluster-key"));
  EXPECT_TRUE(stranger.heard().WaitUntil([](const Heard& heard) { return heard.refusals.size() == 1; }));

  TestNode other(address(), key_, "node-1", ClusterId{});
  const absl::Status wrong_cluster = other.registrar().WaitRegistered(kTestPatience).status();
  EXPECT_EQ(wrong_cluster.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wrong_cluster.message()), HasSubstr(ToHex(cluster_)));
}

TEST_F(RegistrarTest, ANodeWithDataOutlivesAStrangerOnTheRoutersPort) {
  TestNode node(address(), key_, "node-1");
  node.incarnation();
  StopRouter();
  MemoryStateStore home = store_;
  store_ = MemoryStateStore();
  StartRouter();  // Another cluster's router.
  const Nanos until = clock_.Now() + kTestPatience;
  while (!absl::IsFailedPrecondition(node.registrar().last_error()) && clock_.Now() < until)
    std::this_thread::yield();
  EXPECT_THAT(std::string(node.registrar().last_error().message()), HasSubstr(ToHex(cluster_)));
  EXPECT_TRUE(node.heard().Get().refusals.empty());
  StopRouter();
  store_ = home;
  StartRouter();
  ASSERT_TRUE(node.WaitReports(3));
  EXPECT_TRUE(node.WaitNodes(1));
  // It was not silent about it: once, with what to do; and when it was over.
  const std::vector<absl::Status> troubles = node.heard().Get().troubles;
  const auto strangers = std::count_if(troubles.begin(), troubles.end(), absl::IsFailedPrecondition);
  EXPECT_EQ(strangers, 1);
  for (const absl::Status& trouble : troubles) {
    if (absl::IsFailedPrecondition(trouble)) {
      EXPECT_THAT(std::string(trouble.message()), HasSubstr("start the router with"));
    }
  }
  ASSERT_FALSE(troubles.empty());
  EXPECT_TRUE(troubles.back().ok());
}

TEST_F(RegistrarTest, TroublesThatChangeAllTheTimeAreToldOnceInAWhile) {
  TestNode node(address(), key_, "node-1", cluster_, "boot/1:2", "127.0.0.1:4000", 100 * kTestPatience);
  node.incarnation();
  StopRouter();
  EXPECT_TRUE(node.heard().WaitUntil([](const Heard& heard) { return heard.troubles.size() == 1; }));
  MemoryStateStore home = store_;
  store_ = MemoryStateStore();
  StartRouter();  // Another cluster's: another trouble, too soon after the first.
  const Nanos until = clock_.Now() + kTestPatience;
  while (!absl::IsFailedPrecondition(node.registrar().last_error()) && clock_.Now() < until)
    std::this_thread::yield();
  StopRouter();
  store_ = home;
  StartRouter();
  EXPECT_TRUE(node.heard().WaitUntil([](const Heard& heard) { return heard.troubles.size() == 2; }));
  EXPECT_FALSE(node.heard().Get().troubles[0].ok());
  EXPECT_TRUE(node.heard().Get().troubles[1].ok());
}

TEST_F(RegistrarTest, ASupersededProcessIsToldAndEnds) {
  TestNode older(address(), key_, "node-1");
  const uint64_t first = older.incarnation();
  TestNode newer(address(), key_, "node-1");
  EXPECT_GT(newer.incarnation(), first);
  ASSERT_TRUE(older.heard().WaitUntil([](const Heard& heard) { return !heard.refusals.empty(); }));
  EXPECT_EQ(older.heard().Get().refusals[0].code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(newer.WaitReports(2));
  EXPECT_TRUE(newer.heard().Get().refusals.empty());
}

// A copy of the folder, or the same unit on another host: whoever serves goes on, the newcomer ends.
TEST_F(RegistrarTest, ASecondProcessElsewhereEndsAndTheFirstGoesOn) {
  TestNode first(address(), key_, "node-1");
  const uint64_t incarnation = first.incarnation();
  TestNode copy(address(), key_, "node-1", cluster_, "boot/1:3", "127.0.0.1:4001");
  const absl::Status refused = copy.registrar().WaitRegistered(kTestPatience).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("127.0.0.1:4000"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("127.0.0.1:4001"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--node-id"));
  ASSERT_TRUE(first.WaitReports(3));
  EXPECT_EQ(first.incarnation(), incarnation);
  EXPECT_EQ(first.heard().Get().maps.size(), 1u);  // Nothing changed for anybody.
  EXPECT_TRUE(first.heard().Get().refusals.empty());
}

TEST_F(RegistrarTest, WaitsForARouterThatIsNotThereYet) {
  StopRouter();
  TestNode node(address(), key_, "node-1");
  const absl::Status status = node.registrar().WaitRegistered(50 * kMillisecond).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address()));
  StartRouter();
  EXPECT_GT(node.incarnation(), 0u);
}

TEST_F(RegistrarTest, StopsAtOnceInAnyState) {
  { TestNode node(address(), key_, "node-1"); }
  StopRouter();
  { TestNode node(address(), key_, "node-1"); }
  RegistrarCallbacks callbacks;
  callbacks.report = [] { return NodeReport(); };
  Registrar never_started({}, callbacks);
}

// F47 at length: five minutes; here as long as eight heartbeats take.
TEST_F(RegistrarTest, F47_HeartbeatsGoOnWhileTheMachineIsBusy) {
  TestNode node(address(), key_, "node-1");
  node.incarnation();
  std::atomic<bool> stop{false};
  std::vector<std::thread> burners;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    burners.emplace_back([&stop] {
      volatile uint64_t work = 0;
      while (!stop) work = work + 1;
    });
  }
  const bool beat = node.WaitReports(8);
  stop = true;
  for (std::thread& burner : burners) burner.join();
  EXPECT_TRUE(beat);
  EXPECT_EQ(node.heard().Get().maps.size(), 1u);  // One epoch all along: it was never taken for dead.
}

TEST_F(RegistrarTest, F47_AnExpelledNodeRejoinsByItselfAndKeepsItsIncarnation) {
  StopRouter();
  RouterConfig config;
  config.node_silent_max = 50 * kMillisecond;  // Far below a heartbeat: it is expelled between any two.
  StartRouter({}, config);
  TestNode node(address(), key_, "node-1");
  node.incarnation();
  // Each map it hears is one rejoin: gone in between, active again by its own next heartbeat.
  EXPECT_TRUE(node.heard().WaitUntil([](const Heard& heard) { return heard.maps.size() >= 3; }));
  const Heard heard = node.heard().Get();
  for (const ClusterMap& map : heard.maps) {
    ASSERT_EQ(map.nodes.size(), 1u);
    EXPECT_EQ(map.nodes[0].state, NodeState::kActive);
    EXPECT_EQ(map.nodes[0].incarnation, heard.registrations[0].incarnation);
  }
  EXPECT_EQ(node.registrar().registrations(), 1u);
}

}  // namespace
}  // namespace cistern
