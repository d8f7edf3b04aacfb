#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/router.h"
#include "router/router_fixture.h"
#include "router/state_codec.h"

// What a router that dies and comes back still knows, and what a failing store must not break.
namespace cistern {
namespace {

using testing::HasSubstr;

class RouterRestart : public RouterFixture {};

TEST_F(RouterRestart, ServesTheSameMapAtOnce) {
  router_->NoteClient();
  ASSERT_TRUE(Register("node-1", 1).ok());
  ASSERT_TRUE(Register("node-2", 2).ok());
  const ClusterMap before = router_->map();
  const auto secret = router_->NamespaceSecret("default");
  ASSERT_EQ(before.open_moves.size(), 1u);
  clock_.Advance(3600 * kSecond);
  Restart();
  EXPECT_EQ(router_->map(), before);
  EXPECT_EQ(router_->NamespaceSecret("default"), secret);
}

TEST_F(RouterRestart, GivesNodesTimeToCallIn) {
  const Registration one = Register("node-1", 1).value();
  ASSERT_TRUE(Register("node-2", 2).ok());
  Restart();
  const uint64_t epoch = router_->map().epoch;
  Pass(kRestartGrace - 100 * kMillisecond);
  EXPECT_TRUE(Beat("node-1", one.incarnation).known);  // Nothing to register again.
  EXPECT_EQ(router_->map().epoch, epoch);
  Pass(200 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  EXPECT_EQ(Node("node-2").state, NodeState::kGone);
}

TEST_F(RouterRestart, NeverTakesBackAnIncarnationOrAnEpoch) {
  const uint64_t first = Register("node-1", 1).value().incarnation;
  const uint64_t epoch = router_->map().epoch;
  Restart();
  const uint64_t second = Register("node-1", 2).value().incarnation;
  EXPECT_GT(second, first);
  EXPECT_GT(router_->map().epoch, epoch);
  Restart();
  EXPECT_EQ(Register("node-1", 2).value().incarnation, second);
  EXPECT_EQ(Register("node-1", 1).status().code(),
            absl::StatusCode::kAborted);  // Still fenced off.
  EXPECT_GT(Register("node-3", 3).value().incarnation, second);
}

TEST_F(RouterRestart, MovesStayOpenTheirWholeTimeAgainThenClose) {
  router_->NoteClient();
  ASSERT_TRUE(Register("node-1", 1).ok());
  ASSERT_TRUE(Register("node-2", 2).ok());
  Restart();
  for (Nanos passed = 0; passed < kMoveOpen; passed += kSecond) {
    EXPECT_EQ(router_->map().open_moves.size(), 1u);
    for (const NodeEntry& node : std::vector<NodeEntry>(router_->map().nodes))
      Beat(node.id, node.incarnation);
    Pass(kSecond);
  }
  EXPECT_TRUE(router_->map().open_moves.empty());
}

TEST_F(RouterRestart, ALostStateGivesLivingProcessesTheirIncarnationBack) {
  MemoryStateStore fresh;
  store_ = fresh;
  Restart();
  RegisterRequest request = Request("node-1", 1);
  request.held_incarnation = 17;
  EXPECT_EQ(Register(request).value().incarnation, 17u);
  EXPECT_EQ(Register("node-2", 2).value().incarnation, 18u);
}

TEST_F(RouterRestart, RefusesTheStateOfAnotherCluster) {
  RouterConfig config;
  config.cluster = ClusterId{};
  const absl::Status status = Router::Create(config, key_, store_, clock_, random_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(ToHex(router_->cluster())));
}

TEST_F(RouterRestart, RefusesDamagedState) {
  ASSERT_TRUE(Register("node-1", 1).ok());
  const auto good = store_.LoadAll().value();
  ASSERT_TRUE(DecodeState(good).ok());
  auto broken = [&](const std::function<void(std::map<std::string, std::string>&)>& change) {
    auto values = good;
    change(values);
    const absl::Status status = DecodeState(values).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(broken([](auto& v) { v.erase("map"); }), HasSubstr("map: missing"));
  EXPECT_THAT(broken([](auto& v) { v["map"] = "\xff"; }), HasSubstr("does not parse"));
  EXPECT_THAT(broken([](auto& v) { v["map"] = ""; }), HasSubstr("schema"));
  EXPECT_THAT(broken([](auto& v) { v.erase("node/node-1"); }), HasSubstr("node/node-1: missing"));
  EXPECT_THAT(broken([](auto& v) { v["node/node-1"] = "\xff"; }), HasSubstr("does not parse"));
  EXPECT_THAT(broken([](auto& v) { v["node/node-9"] = ""; }), HasSubstr("does not have"));
}

TEST_F(RouterRestart, AChangeThatCannotBeStoredDidNotHappen) {
  const Registration node = Register("node-1", 1).value();
  const ClusterMap before = router_->map();
  store_.FailWith(absl::ResourceExhaustedError("disk full"));
  const absl::Status status = Register("node-2", 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk full"));
  EXPECT_TRUE(Beat("node-1", node.incarnation).known);  // Heartbeats need no disk.
  EXPECT_EQ(router_->map(), before);
  Pass(4 * kSecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);  // An epoch that is not stored is not published.
  EXPECT_GT(Counter("store_errors_total"), 1u);
  store_.FailWith(absl::OkStatus());
  Pass(100 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kGone);
  EXPECT_TRUE(Register("node-2", 2).ok());
}

}  // namespace
}  // namespace cistern
