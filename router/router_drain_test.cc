#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/router_fixture.h"

namespace cistern {
namespace {

using testing::HasSubstr;
constexpr int64_t kNow = 1'800'000'000;

class RouterDrain : public RouterFixture {
 protected:
  void SetUp() override {
    RouterFixture::SetUp();
    router_->NoteClient();
    for (const char* id : {"node-1", "node-2"}) ASSERT_TRUE(Register(id, 10).ok());
  }
  absl::StatusOr<DrainResult> Drain(const std::string& id, bool undo = false, uint32_t rights = kRightAdmin) {
    return router_->Drain({router_->IssueTicket("", rights, kNow)->sealed, id, undo}, kNow);
  }
  void BeatFor(Nanos time) {
    for (Nanos passed = 0; passed < time; passed += kSecond) {
      for (const NodeEntry& node : std::vector<NodeEntry>(router_->map().nodes))
        Beat(node.id, node.incarnation);
      Pass(kSecond);
    }
  }
  // Whether clients still ask a node's former runs of it.
  bool IsAsked(const std::string& id) {
    for (const OwnerSet& move : router_->map().open_moves) {
      for (const OwnerSet::Owner& owner : move.owners) {
        if (owner.id == id) return true;
      }
    }
    return false;
  }
  bool IsOwner(const std::string& id) {
    for (const OwnerSet::Owner& owner : ActiveOwners(router_->map()).owners) {
      if (owner.id == id) return true;
    }
    return false;
  }
};

TEST_F(RouterDrain, TheNodeGetsNothingNewAndIsReadUntilItIsStopped) {
  EXPECT_EQ(Drain("node-1")->state, NodeState::kDraining);
  EXPECT_FALSE(IsOwner("node-1"));
  EXPECT_TRUE(IsOwner("node-2"));
  BeatFor(20 * kMoveOpen);
  EXPECT_EQ(Node("node-1").state, NodeState::kDraining);
  EXPECT_TRUE(IsAsked("node-1")) << "what it holds cannot be found any more";
  for (int i = 0; i < 5; ++i) {  // Stopped.
    Beat("node-2", Node("node-2").incarnation);
    Pass(kSecond);
  }
  EXPECT_EQ(Node("node-1").state, NodeState::kGone);
  EXPECT_FALSE(IsAsked("node-1"));
}

TEST_F(RouterDrain, ItOutlivesTheProcessTheNodesSilenceAndTheRouter) {
  ASSERT_TRUE(Drain("node-1").ok());
  ASSERT_TRUE(Register("node-1", 11).ok());
  EXPECT_EQ(Node("node-1").state, NodeState::kDraining);
  const uint64_t incarnation = Node("node-1").incarnation;
  Pass(5 * kSecond);
  ASSERT_EQ(Node("node-1").state, NodeState::kGone);
  Beat("node-1", incarnation);
  EXPECT_EQ(Node("node-1").state, NodeState::kDraining);
  Pass(5 * kSecond);
  Restart();
  ASSERT_TRUE(Register("node-1", 12).ok());
  EXPECT_EQ(Node("node-1").state, NodeState::kDraining);
}

TEST_F(RouterDrain, UndoneItOwnsAgain) {
  const uint64_t epoch = Drain("node-1")->epoch;
  EXPECT_EQ(Drain("node-1")->epoch, epoch);  // Said twice.
  const DrainResult back = Drain("node-1", true).value();
  EXPECT_EQ(back.state, NodeState::kActive);
  EXPECT_GT(back.epoch, epoch);
  EXPECT_TRUE(IsOwner("node-1"));
  Pass(5 * kSecond);
  ASSERT_TRUE(Register("node-1", 11).ok());
  EXPECT_EQ(Node("node-1").state, NodeState::kActive);
}

TEST_F(RouterDrain, RefusesStrangersUnknownNodesAndTheLastOne) {
  EXPECT_TRUE(absl::IsPermissionDenied(Drain("node-1", false, kRightRead | kRightWrite).status()));
  EXPECT_FALSE(router_->Drain({"no ticket", "node-1", false}, kNow).ok());
  EXPECT_TRUE(absl::IsNotFound(Drain("node-9").status()));
  ASSERT_TRUE(Drain("node-1").ok());
  const absl::Status last = Drain("node-2").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(last));
  EXPECT_THAT(std::string(last.message()), HasSubstr("no other node is active"));
  EXPECT_EQ(Node("node-2").state, NodeState::kActive);
}

}  // namespace
}  // namespace cistern
