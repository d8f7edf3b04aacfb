// Fetches whose answers come in parts: what follows is on its way from a slower tier of the node.
#include <gmock/gmock.h>

#include "client/core/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;

class ClientParts : public ClientFixture {
 protected:
  void StartWith(int nodes, uint32_t in_parts) {
    for (int i = 1; i <= nodes; ++i) {
      AddNode("node-" + std::to_string(i));
      nodes_.back()->in_parts = in_parts;
    }
    Start();
  }
};

TEST_F(ClientParts, AFetchAsksOnUntilItHasAll) {
  StartWith(3, 3);
  const auto keys = MakeKeys(40);
  Fill(keys, 40);
  Pages pages = MakePages(40);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_EQ(result.hit, 40u);
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  for (uint32_t i = 0; i < 40; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  uint64_t plans = 0;
  for (const auto& node : nodes_) plans += node->frames[FrameType::kPlan];
  EXPECT_GT(plans, 6u);
  Settle();
  for (const auto& node : nodes_) EXPECT_TRUE(node->plans.empty()) << "a lease outlived the fetch";
}

// What is here is in the pages while the rest is still asked for.
TEST_F(ClientParts, TheFirstPartIsThereBeforeTheSecond) {
  StartWith(1, 4);
  const auto keys = MakeKeys(12);
  Fill(keys, 12);
  Pages pages = MakePages(12);
  LoadResult result;
  core_->Fetch(Spec(keys, 0), pages.view(), result.Take());
  FakeNode& node = *nodes_.back();
  while (node.frames[FrameType::kPlan] < 2) core_->Poll();
  node.hold = true;
  for (int i = 0; i < 100; ++i) core_->Poll();
  EXPECT_FALSE(result.done);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  node.hold = false;
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
}

TEST_F(ClientParts, WhatDoesNotComeIsAMissBehindWhatCame) {
  StartWith(1, 4);
  const auto keys = MakeKeys(12);
  Fill(keys, 7);
  Pages pages = MakePages(12);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_EQ(result.hit, 7u);
  for (uint32_t i = 0; i < 12; ++i)
    EXPECT_EQ(result.pages[i], i < 7 ? PartResult::kOk : PartResult::kMiss) << i;
}

// A node that promises more and gives nothing keeps nobody.
TEST_F(ClientParts, APromiseWithoutABlockIsAMiss) {
  StartWith(1, 0);
  const auto keys = MakeKeys(12);
  Fill(keys, 12);
  Pages pages = MakePages(12);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.hit, 0u);
  EXPECT_LE(nodes_.back()->frames[FrameType::kPlan], 2u);
}

}  // namespace
}  // namespace cistern
