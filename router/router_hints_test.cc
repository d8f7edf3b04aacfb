#include <gtest/gtest.h>

#include "router/router_fixture.h"

namespace cistern {
namespace {

constexpr int64_t kNow = 1'700'000'000;

class RouterHints : public RouterFixture {
 protected:
  GoneReport Report(std::vector<GonePeer> peers) {
    return {router_->IssueTicket("", 0, kNow).value().sealed, std::move(peers)};
  }
  absl::StatusOr<uint32_t> Say(const std::string& id, uint64_t incarnation) {
    return router_->ReportPeersGone(Report({{id, incarnation}}), kNow);
  }
};

TEST_F(RouterHints, F32_ASilentNodeThatAClientFoundDeadIsGoneSooner) {
  const uint64_t one = Register("node-1", 1)->incarnation;
  const uint64_t two = Register("node-2", 2)->incarnation;
  Beat("node-1", one);
  Beat("node-2", two);
  EXPECT_EQ(Say("node-1", one).value(), 0u);  // Its heartbeat is not due yet; that the hint holds is enough.
  Pass(600 * kMillisecond);
  EXPECT_EQ(Say("node-1", one).value(), 1u);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  Pass(kHintedSilentMax - 700 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  Pass(200 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kGone);
  EXPECT_EQ(Node("node-2").state, NodeState::kActive) << "nobody spoke of it";
  EXPECT_EQ(Counter("nodes_expired_by_hint_total"), 1u);
  EXPECT_EQ(Counter("peer_hints_taken_total"), 2u);
  Pass(kNodeSilentMax);
  EXPECT_EQ(Node("node-2").state, NodeState::kGone);
  EXPECT_EQ(Counter("nodes_expired_by_hint_total"), 1u);
}

TEST_F(RouterHints, F32_ANodeThatTheRouterHearsStaysWhateverIsSaidOfIt) {
  const uint64_t one = Register("node-1", 1)->incarnation;
  const uint64_t epoch = router_->map().epoch;
  for (int i = 0; i < 20; ++i) {
    Beat("node-1", one);
    for (int said = 0; said < 5; ++said) {
      EXPECT_TRUE(Say("node-1", one).ok());
      Pass(200 * kMillisecond);
    }
  }
  EXPECT_EQ(router_->map().epoch, epoch);
  // The last heartbeat after a hint gives it its whole time again.
  Beat("node-1", one);
  Pass(kHintedSilentMax + kSecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
}

TEST_F(RouterHints, WhatTheMapSaysAlreadyOrNeverSaidDoesNothing) {
  const uint64_t old = Register("node-1", 1)->incarnation;
  const uint64_t one = Register("node-1", 2)->incarnation;
  const uint64_t epoch = router_->map().epoch;
  EXPECT_EQ(Say("node-1", old).value(), 0u);
  EXPECT_EQ(Say("node-7", 1).value(), 0u);
  EXPECT_EQ(Counter("peer_hints_stale_total"), 2u);
  Pass(kHintedSilentMax + 500 * kMillisecond);
  EXPECT_EQ(router_->map().epoch, epoch) << "what was said of the process before is not said of this one";
  Pass(kNodeSilentMax);
  ASSERT_EQ(Node("node-1").state, NodeState::kGone);
  EXPECT_EQ(Say("node-1", one).value(), 0u);
  EXPECT_EQ(Counter("peer_hints_stale_total"), 3u);
}

TEST_F(RouterHints, ARestartedOrPausedRouterGivesNodesTheirTime) {
  const uint64_t one = Register("node-1", 1)->incarnation;
  Restart();
  clock_.Advance(kMillisecond);
  EXPECT_EQ(Say("node-1", one).value(), 0u);
  EXPECT_EQ(Counter("peer_hints_early_total"), 1u);
  Pass(kHintedSilentMax + kSecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  Beat("node-1", one);
  clock_.Advance(kTickGapMax + kSecond);  // The router stood still: what it did not hear is its own fault.
  router_->Tick();
  EXPECT_EQ(Say("node-1", one).value(), 0u);
  Pass(kHintedSilentMax - 200 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
  Pass(300 * kMillisecond);
  EXPECT_EQ(Node("node-1").state, NodeState::kGone);
}

TEST_F(RouterHints, StrangersAreNotHeardAndFloodsAreCutOff) {
  const uint64_t one = Register("node-1", 1)->incarnation;
  GoneReport report = Report({{"node-1", one}});
  report.ticket[5] ^= 1;
  EXPECT_EQ(router_->ReportPeersGone(report, kNow).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Counter("peer_hints_denied_total"), 1u);
  report = Report(std::vector<GonePeer>(kGonePeersMax, {"node-9", 1}));
  for (size_t said = 0; said < kHintsPerSecondMax; said += kGonePeersMax)
    EXPECT_TRUE(router_->ReportPeersGone(report, kNow).ok());
  EXPECT_EQ(router_->ReportPeersGone(report, kNow).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Counter("peer_hints_over_limit_total"), kGonePeersMax);
  Pass(kSecond);
  EXPECT_TRUE(router_->ReportPeersGone(report, kNow).ok());
}

}  // namespace
}  // namespace cistern
