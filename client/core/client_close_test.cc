#include <gmock/gmock.h>

#include "client/core/testing/client_fixture.h"

// What a client does when it goes: every call ends, and nothing is begun any more.
namespace cistern {
namespace {

class ClientClose : public ClientFixture {};

TEST_F(ClientClose, ACallOfTheLastCallbackIsRefusedAndConnectsToNobody) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  EXPECT_EQ(Lookup(keys).blocks, 4u);
  nodes_[0]->silent = true;
  std::vector<absl::Status> told;
  core_->Lookup(Spec(keys), [&](const LookupOutcome&) {
    core_->Lookup(Spec(keys), [&](const LookupOutcome& o) { told.push_back(o.status); });
    core_->FetchNodeStats("node-1", 0, kSecond, [&](const AdminOutcome& o) { told.push_back(o.status); });
    core_->ConnectAll();
  });
  // The peer dies and the client goes: the connection that would be made anew would outlive it.
  transport_.Drop(*nodes_[0]);
  clock_.Advance(10 * kSecond);
  const uint64_t connects = transport_.connect_calls["sim:node-1"];
  core_->Close();
  ASSERT_EQ(told.size(), 2u);
  for (const absl::Status& status : told) EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(transport_.connect_calls["sim:node-1"], connects);
  EXPECT_EQ(transport_.peer_count(), 0u);
  EXPECT_FALSE(core_->Poll());
  EXPECT_EQ(core_->outstanding(), 0u);
}

TEST_F(ClientClose, ACallerThatAsksAgainAfterEachRefusalDoesNotKeepItOpen) {
  AddNode("node-1");
  nodes_[0]->silent = true;
  Start();
  const auto keys = MakeKeys(4);
  uint32_t asked = 0;
  std::function<void(const LookupOutcome&)> again = [&](const LookupOutcome&) {
    ++asked;
    core_->Lookup(Spec(keys), again);
  };
  core_->Lookup(Spec(keys), again);
  core_->Close();
  EXPECT_GT(asked, 1u);
  EXPECT_LE(asked, 1 + kCloseRoundsMax);
}

}  // namespace
}  // namespace cistern
