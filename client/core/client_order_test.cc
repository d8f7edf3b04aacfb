// Runs whose blocks are asked for in several requests, and what their answers say in which order.
#include <gmock/gmock.h>

#include "client/core/client_core_impl.h"
#include "client/core/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;

class ClientOrder : public ClientFixture {
 protected:
  // Nodes that send bytes with their answers; node-2 owned everything before node-1 did.
  void StartMoved() {
    AddNode("node-1");
    AddNode("node-2");
    for (const auto& node : nodes_) node->one_sided = false;
    map_.nodes[1].state = NodeState::kDraining;
    map_.open_moves = {{.epoch = 0, .owners = {{"node-2", 1}}}};
    Start();
  }
  // Of blocks so big that of a run's `split` go into one request.
  void BlocksFor(uint32_t split) {
    part_bytes_ = static_cast<uint32_t>(kInlineAskBytesMax / split / coords_.size() / 64 * 64);
  }
  void Give(FakeNode& node, const std::vector<BlockKey>& keys, std::initializer_list<uint32_t> blocks) {
    for (const uint32_t b : blocks) {
      for (const PartCoord& coord : coords_) node.Add(keys[b], coord, BytesOf(keys[b], coord));
    }
  }
};

TEST_F(ClientOrder, ALaterAnswerAboutARunWaitsForTheEarlierOne) {
  coords_ = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}};
  BlocksFor(1);
  AddNode("node-1");
  FakeNode& node = *nodes_.front();
  node.one_sided = false;
  node.hold = node.newest_first = true;
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  Pages pages = MakePages(4);
  LoadResult result;
  core_->Fetch(Spec(keys), pages.view(), result.Take());
  Settle();
  node.hold = false;
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  EXPECT_EQ(node.frames[FrameType::kPlan], 4u) << "a block was asked for twice";
  EXPECT_EQ(Counter("client_corrupt_pages_total"), 0u);
}

TEST_F(ClientOrder, WhatFollowsAGapComesWithTheGapFromTheOwnerBefore) {
  coords_ = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}};
  BlocksFor(1);
  StartMoved();
  const auto keys = MakeKeys(4);
  Give(*nodes_[0], keys, {0, 1, 3});
  Give(*nodes_[1], keys, {2, 3});
  Pages pages = MakePages(4);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  EXPECT_EQ(Counter("client_corrupt_pages_total"), 0u);
}

// A request ends with the last block of one run and begins the next: what the node has of the one is none of
// the other's.
TEST_F(ClientOrder, BlocksOfOneRunAreNotTakenForThoseOfTheNext) {
  map_.run_blocks_cap = 4;
  BlocksFor(3);
  StartMoved();
  const auto keys = MakeKeys(9);  // Runs [4, 8) and [8, 9); blocks 7 and 8 share a request.
  Give(*nodes_[0], keys, {0, 1, 2, 3, 4, 5, 7});
  Give(*nodes_[1], keys, {6, 7});
  Pages pages = MakePages(9);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_EQ(result.hit, 8u);
  for (uint32_t i = 0; i < 9; ++i)
    EXPECT_EQ(result.pages[i], i < 8 ? PartResult::kOk : PartResult::kMiss) << i;
}

}  // namespace
}  // namespace cistern
