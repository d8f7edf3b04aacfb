#include "router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "router/router_fixture.h"

namespace cistern {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RouterTest : public RouterFixture {};

std::vector<std::string> Ids(const OwnerSet& set) {
  std::vector<std::string> ids;
  for (const auto& owner : set.owners) ids.push_back(owner.id);
  return ids;
}

TEST_F(RouterTest, BeginsEmptyWithAnIdAndAnEpoch) {
  EXPECT_EQ(router_->map().epoch, 1u);
  EXPECT_THAT(router_->map().nodes, IsEmpty());
  EXPECT_NE(router_->cluster(), ClusterId{});
  EXPECT_EQ(router_->map().run_blocks_cap, kRunBlocksCapDefault);
}

TEST_F(RouterTest, ANodeIsActiveOnceRegisteredAndNodesAreSorted) {
  const Registration second = Register("node-2", 20).value();
  const Registration first = Register("node-1", 10).value();
  EXPECT_EQ(first.cluster, router_->cluster());
  EXPECT_EQ(first.heartbeat_ms, kHeartbeatMs);
  EXPECT_GT(first.incarnation, second.incarnation);
  ASSERT_EQ(router_->map().nodes.size(), 2u);
  EXPECT_EQ(router_->map().nodes[0].id, "node-1");
  EXPECT_EQ(router_->map().nodes[0].state, NodeState::kActive);
  EXPECT_EQ(router_->map().epoch, 3u);
}

TEST_F(RouterTest, WeightFollowsRamUnlessGiven) {
  RegisterRequest request = Request("node-1", 1);
  request.ram_bytes = uint64_t{3} << 30;
  ASSERT_TRUE(Register(request).ok());
  EXPECT_DOUBLE_EQ(Node("node-1").weight, 3);
  request = Request("node-2", 2);
  request.weight = 7;
  ASSERT_TRUE(Register(request).ok());
  EXPECT_DOUBLE_EQ(Node("node-2").weight, 7);
  request = Request("node-3", 3);
  request.ram_bytes = 0;
  ASSERT_TRUE(Register(request).ok());
  EXPECT_GT(Node("node-3").weight, 0);
}

TEST_F(RouterTest, TheSameProcessRegistersAgainWithoutANewEpoch) {
  const Registration first = Register("node-1", 10).value();
  const uint64_t epoch = router_->map().epoch;
  EXPECT_EQ(Register("node-1", 10).value(), first);
  EXPECT_EQ(router_->map().epoch, epoch);
}

TEST_F(RouterTest, ANewProcessGetsAHigherIncarnationAndTheOldOneIsFencedOff) {
  const Registration first = Register("node-1", 10).value();
  Beat("node-1", first.incarnation, 99);
  const Registration second = Register("node-1", 11).value();
  EXPECT_GT(second.incarnation, first.incarnation);
  EXPECT_EQ(router_->Status().nodes[0].stats.hit_blocks,
            0u);  // The old process' figures are not the new one's.
  EXPECT_FALSE(Beat("node-1", first.incarnation).known);
  const absl::Status again = Register("node-1", 10).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(again.message()), HasSubstr("newer process"));
  EXPECT_TRUE(Beat("node-1", second.incarnation).known);
}

TEST_F(RouterTest, RefusesWrongProofOtherClusterAndBadFields) {
  RegisterRequest request = Request("node-1", 1);
  request.proof = RegisterProof(ClusterKey::Generate(), request);
  EXPECT_EQ(router_->Register(request).status().code(), absl::StatusCode::kPermissionDenied);
  request.proof = RegisterProof(key_, request);
  request.shards[0].tcp = "10.0.0.9:1";  // Not what the proof was made for.
  EXPECT_EQ(router_->Register(request).status().code(), absl::StatusCode::kPermissionDenied);
  request.cluster = ClusterId{};
  const absl::Status other = Register(request).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr(ToHex(router_->cluster())));
  request.node_id = "no spaces";
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(router_->map().nodes, IsEmpty());
  EXPECT_EQ(Counter("registrations_refused_total"), 3u);
}

TEST_F(RouterTest, RefusesAHeartbeatWithoutProof) {
  const Registration node = Register("node-1", 1).value();
  HeartbeatRequest request;
  request.node_id = "node-1";
  request.incarnation = node.incarnation;
  EXPECT_EQ(router_->Heartbeat(request).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RouterTest, AnUnknownNodeIsToldToRegister) { EXPECT_FALSE(Beat("node-9", 3).known); }

TEST_F(RouterTest, SilenceForLongerThanTheLimitMakesANodeGone) {
  const Registration one = Register("node-1", 1).value();
  ASSERT_TRUE(Register("node-2", 2).ok());
  const uint64_t epoch = router_->map().epoch;
  for (int i = 0; i < 5; ++i) {
    Pass(500 * kMillisecond);
    Beat("node-1", one.incarnation);
  }
  EXPECT_EQ(Node("node-2").state, NodeState::kActive);  // 2.5 s.
  EXPECT_EQ(router_->map().epoch, epoch);
  Pass(500 * kMillisecond);
  EXPECT_EQ(Node("node-2").state, NodeState::kGone);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  EXPECT_EQ(router_->map().epoch, epoch + 1);
  EXPECT_EQ(Counter("nodes_expired_total"), 1u);
}

TEST_F(RouterTest, F47_AnExpelledNodeRejoinsWithItsNextHeartbeatAndItsIncarnation) {
  const Registration node = Register("node-1", 1).value();
  Pass(4 * kSecond);
  ASSERT_EQ(Node("node-1").state, NodeState::kGone);
  const uint64_t epoch = router_->map().epoch;
  const HeartbeatResult back = Beat("node-1", node.incarnation);
  EXPECT_TRUE(back.known);
  EXPECT_EQ(back.epoch, epoch + 1);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  EXPECT_EQ(Node("node-1").incarnation, node.incarnation);  // Same incarnation: it keeps its verified data.
  Pass(2 * kSecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
}

TEST_F(RouterTest, F47_RegularHeartbeatsNeverExpire) {
  const Registration node = Register("node-1", 1).value();
  const uint64_t epoch = router_->map().epoch;
  for (int i = 0; i < 300; ++i) {  // Five simulated minutes, each heartbeat as late as it may be.
    Pass(kNodeSilentMax - 100 * kMillisecond);
    Beat("node-1", node.incarnation);
  }
  EXPECT_EQ(router_->map().epoch, epoch);
  EXPECT_EQ(Counter("nodes_expired_total"), 0u);
}

TEST_F(RouterTest, F46_APausedNodeRejoinsUnderANewEpochAndItsOldFiguresDoNotCount) {
  const Registration node = Register("node-1", 1).value();
  Beat("node-1", node.incarnation, 5);
  Pass(4 * kSecond);
  const uint64_t epoch = router_->map().epoch;
  Beat("node-1", node.incarnation, 1000);  // Made before the pause, sent after it.
  EXPECT_GT(router_->map().epoch, epoch);
  EXPECT_EQ(router_->Status().nodes[0].stats.hit_blocks, 5u);
  Beat("node-1", node.incarnation, 6);
  EXPECT_EQ(router_->Status().nodes[0].stats.hit_blocks, 6u);
}

TEST_F(RouterTest, F46_ARouterThatStoodStillExpiresNobody) {
  const Registration node = Register("node-1", 1).value();
  const uint64_t epoch = router_->map().epoch;
  clock_.Advance(3600 * kSecond);  // The router was stopped; its nodes were not.
  router_->Tick();
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  EXPECT_EQ(router_->map().epoch, epoch);
  EXPECT_EQ(Counter("pauses_total"), 1u);
  EXPECT_TRUE(Beat("node-1", node.incarnation).known);
  Pass(4 * kSecond);  // But silence after it counts again.
  EXPECT_EQ(Node("node-1").state, NodeState::kGone);
}

TEST_F(RouterTest, KeepsOldOwnersOpenForTheirTimeNewestFirst) {
  router_->NoteClient();
  ASSERT_TRUE(Register("node-1", 1).ok());
  EXPECT_THAT(router_->map().open_moves, IsEmpty());  // Nobody owned anything before.
  const uint64_t first_epoch = router_->map().epoch;
  ASSERT_TRUE(Register("node-2", 2).ok());
  ASSERT_EQ(router_->map().open_moves.size(), 1u);
  EXPECT_EQ(router_->map().open_moves[0].epoch, first_epoch);
  EXPECT_THAT(Ids(router_->map().open_moves[0]), ElementsAre("node-1"));
  clock_.Advance(kSecond);
  ASSERT_TRUE(Register("node-3", 3).ok());
  ASSERT_TRUE(Register("node-4", 4).ok());
  ASSERT_EQ(router_->map().open_moves.size(), kOpenMovesMax);  // The oldest gave way.
  EXPECT_THAT(Ids(router_->map().open_moves[0]), ElementsAre("node-1", "node-2", "node-3"));
  EXPECT_THAT(Ids(router_->map().open_moves[1]), ElementsAre("node-1", "node-2"));
  const uint64_t epoch = router_->map().epoch;
  for (Nanos passed = 0; passed < kMoveOpen - kSecond; passed += kSecond) {
    Pass(kSecond);
    for (const NodeEntry& node : std::vector<NodeEntry>(router_->map().nodes))
      Beat(node.id, node.incarnation);
  }
  EXPECT_EQ(router_->map().open_moves.size(), 2u);
  Pass(kSecond);
  EXPECT_THAT(router_->map().open_moves, IsEmpty());
  EXPECT_GT(router_->map().epoch, epoch);
}

TEST_F(RouterTest, AMoveBackToTheSameOwnersIsNotAskedTwice) {
  router_->NoteClient();
  const Registration one = Register("node-1", 1).value();
  const Registration two = Register("node-2", 2).value();
  for (int i = 0; i < 4; ++i) {
    Pass(kSecond);
    Beat("node-1", one.incarnation);
  }
  ASSERT_EQ(Node("node-2").state, NodeState::kGone);
  EXPECT_THAT(Ids(router_->map().open_moves[0]), ElementsAre("node-1", "node-2"));
  Beat("node-2", two.incarnation);
  ASSERT_EQ(router_->map().open_moves.size(), 1u);
  EXPECT_THAT(Ids(router_->map().open_moves[0]), ElementsAre("node-1"));
}

TEST_F(RouterTest, BeforeTheFirstClientNothingNeedsMoving) {
  ASSERT_TRUE(Register("node-1", 1).ok());
  ASSERT_TRUE(Register("node-2", 2).ok());
  EXPECT_THAT(router_->map().open_moves, IsEmpty());
  ASSERT_TRUE(router_->IssueTicket("", 0, 1000).ok());
  ASSERT_TRUE(Register("node-3", 3).ok());
  EXPECT_EQ(router_->map().open_moves.size(), 1u);
}

TEST_F(RouterTest, ARestartedNodeMovesNothing) {
  router_->NoteClient();
  ASSERT_TRUE(Register("node-1", 1).ok());
  ASSERT_TRUE(Register("node-2", 2).ok());
  const auto moves = router_->map().open_moves;
  ASSERT_TRUE(Register("node-2", 3).ok());
  EXPECT_EQ(router_->map().open_moves, moves);
}

TEST_F(RouterTest, AFullMapForgetsTheLongestGoneNodeOnly) {
  for (size_t i = 0; i < kNodesMax; ++i) ASSERT_TRUE(Register(absl::StrCat("n", 10000 + i), i + 1).ok());
  EXPECT_EQ(Register("one-more", 1).status().code(), absl::StatusCode::kResourceExhausted);
  // All but the first fall silent.
  for (int i = 0; i < 4; ++i) {
    Pass(kSecond);
    Beat("n10000", Node("n10000").incarnation);
  }
  ASSERT_EQ(Node("n10001").state, NodeState::kGone);
  ASSERT_TRUE(Register("one-more", 1).ok());
  EXPECT_EQ(router_->map().nodes.size(), kNodesMax);
  EXPECT_EQ(Node("n10000").state, NodeState::kActive);
}

TEST_F(RouterTest, IssuesTicketsThatNodesCanCheckAlone) {
  const TicketGrant grant = router_->IssueTicket("", 0, 1000).value();
  const Ticket ticket = OpenTicket(grant.sealed, key_, router_->cluster(), 1000).value();
  EXPECT_EQ(ticket.rights, uint32_t{kRightRead | kRightWrite});
  EXPECT_EQ(ticket.tenant, "default");
  EXPECT_EQ(ticket.expires_unix_s, 1000 + kTicketLifeSeconds);
  EXPECT_EQ(grant.expires_unix_s, ticket.expires_unix_s);
  EXPECT_EQ(grant.namespace_secret, router_->NamespaceSecret("default"));
  EXPECT_NE(grant.namespace_secret, router_->NamespaceSecret("other"));
  EXPECT_EQ(router_->IssueTicket("nobody", 0, 1000).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(router_->IssueTicket("", 1u << 20, 1000).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RouterTest, StatusTellsAgesAndFigures) {
  const Registration node = Register("node-1", 1).value();
  Beat("node-1", node.incarnation, 3);
  clock_.Advance(250 * kMillisecond);
  const ClusterStatus status = router_->Status();
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0].last_heartbeat_ms_ago, 250u);
  EXPECT_EQ(status.nodes[0].stats.hit_blocks, 3u);
  EXPECT_EQ(status.uptime_ms, 250u);
  EXPECT_EQ(status.map, router_->map());
}

TEST_F(RouterTest, TickSaysWhenItIsNeededNext) {
  EXPECT_EQ(router_->Tick(), clock_.Now() + kTickMax);
  ASSERT_TRUE(Register("node-1", 1).ok());
  Pass(kNodeSilentMax - 100 * kMillisecond);
  Beat("node-1", Node("node-1").incarnation);
  Pass(kNodeSilentMax - 200 * kMillisecond);
  EXPECT_EQ(router_->Tick(), clock_.Now() + 200 * kMillisecond);  // The node's deadline, not the usual turn.
}

}  // namespace
}  // namespace cistern
