#include "client/core/testing/store_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;

class ClientStore : public StoreFixture {};
INSTANTIATE_TEST_SUITE_P(Paths, ClientStore,
                         ::testing::Values(StorePath::kInline, StorePath::kStaged, StorePath::kWindow),
                         StorePathName);

TEST_P(ClientStore, WhatIsStoredComesBackAndASecondStoreFindsIt) {
  AddNodes(3);
  Start();
  const auto keys = MakeKeys(50);
  const Source head = MakeSource(keys, 0, 20);
  StoreResult result = Store(keys, 0, head);
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  EXPECT_EQ(result.bytes, 20u * 2 * kPartBytes);
  const Source all = MakeSource(keys, 0, 50);
  result = Store(keys, 0, all);
  for (uint32_t i = 0; i < 50; ++i)
    EXPECT_EQ(result.pages[i], i < 20 ? PartResult::kExists : PartResult::kOk) << i;
  EXPECT_EQ(result.bytes, 30u * 2 * kPartBytes);
  Pages pages = MakePages(50);
  EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
  for (uint32_t i = 0; i < 50; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  const uint64_t bytes = 50u * 2 * kPartBytes;
  EXPECT_EQ(Counter("client_window_put_bytes_total"), GetParam() == StorePath::kWindow ? bytes : 0);
  EXPECT_EQ(Counter("client_staged_put_bytes_total"), GetParam() == StorePath::kStaged ? bytes : 0);
  EXPECT_EQ(Counter("client_inline_put_bytes_total"), GetParam() == StorePath::kInline ? bytes : 0);
  EXPECT_EQ(window_->free_chunks(), kStagingChunks);
}

TEST_P(ClientStore, StoresInTheMiddleOfAChain) {
  AddNodes(2);
  Start();
  const auto keys = MakeKeys(30);
  EXPECT_THAT(Store(keys, 0, MakeSource(keys, 0, 13)).pages, Each(PartResult::kOk));
  EXPECT_THAT(Store(keys, 13, MakeSource(keys, 13, 17)).pages, Each(PartResult::kOk));
  EXPECT_EQ(Lookup(keys).blocks, 30u);
}

TEST_P(ClientStore, MoreThanTheStagingChunksHoldIsPipelined) {
  AddNodes(1);
  Start();
  const uint32_t blocks = (24u << 20) / (2 * kPartBytes);
  const auto keys = MakeKeys(blocks);
  EXPECT_THAT(Store(keys, 0, MakeSource(keys, 0, blocks)).pages, Each(PartResult::kOk));
  EXPECT_EQ(Lookup(keys).blocks, blocks);
  EXPECT_EQ(window_->free_chunks(), kStagingChunks);
}

TEST_P(ClientStore, F11_EachRefusedPartIsItsPagesResult) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(8);
  nodes_[0]->edit_offer = [](OfferReply& reply) {
    reply.slots[3] = {0, PartResult::kNoSpace};
  };  // Block 1, slice 1.
  nodes_[0]->edit_put = [](PutReply& reply) {
    reply.results[0] = PartResult::kCorrupt;
  };  // Block 0, slice 0.
  const StoreResult result = Store(keys, 0, MakeSource(keys, 0, 8));
  ASSERT_EQ(result.pages.size(), 8u);
  EXPECT_EQ(result.pages[0], PartResult::kCorrupt);
  EXPECT_EQ(result.pages[1], PartResult::kNoSpace);
  for (uint32_t i = 2; i < 8; ++i) EXPECT_EQ(result.pages[i], PartResult::kOk);
}

TEST_P(ClientStore, DeadNodeRefusesItsPagesAloneAndAtOnce) {
  AddNodes(3);
  Start();
  const auto keys = MakeKeys(60);
  FakeNode& dead = OwnerOf(keys, 30);
  dead.refuse = true;
  const Nanos start = clock_.Now();
  const StoreResult result = Store(keys, 0, MakeSource(keys, 0, 60));
  EXPECT_LT(clock_.Now() - start, 10 * kMillisecond);
  for (uint32_t i = 0; i < 60; ++i) {
    EXPECT_EQ(result.pages[i], &OwnerOf(keys, i) == &dead ? PartResult::kPeerGone : PartResult::kOk) << i;
  }
}

TEST_P(ClientStore, DeadlineGivesTheMemoryBackAndOffersAreAborted) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(6);
  nodes_[0]->hold_type = FrameType::kPutReply;
  const Source source = MakeSource(keys, 0, 6);
  const Nanos start = clock_.Now();
  const StoreResult result = Store(keys, 0, source, 100 * kMillisecond);
  EXPECT_LE(clock_.Now() - start, 110 * kMillisecond);
  EXPECT_THAT(result.pages, Each(PartResult::kDeadline));
  // The reply comes after all: the chunk is free again.
  nodes_[0]->hold_type = {};
  Settle();
  EXPECT_EQ(window_->free_chunks(), kStagingChunks);
  EXPECT_EQ(Counter("client_requests_open"), 0u);
}

TEST_P(ClientStore, F23_PayloadThatWaitsInASocketIsFencedAtTheDeadline) {
  if (GetParam() != StorePath::kInline) GTEST_SKIP() << "nothing of the caller's is borrowed";
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(6);
  Store(keys, 0, MakeSource(keys, 0, 1));
  StoreResult result;
  const Source source = MakeSource(keys, 0, 6);
  core_->Store(Spec(keys, 100 * kMillisecond), 0, source.view(), result.Take());
  core_->Poll();  // The offer is answered and the PUT queued; its payload has not been read.
  nodes_[0]->silent = true;
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_EQ(transport_.fences, 1u);
}

TEST_P(ClientStore, OnlyTheCurrentOwnerIsOffered) {
  AddNodes(2);
  map_.nodes[1].state = NodeState::kDraining;
  map_.open_moves.push_back({1, {{"node-2", 1}}});
  Start();
  const auto keys = MakeKeys(20);
  EXPECT_THAT(Store(keys, 0, MakeSource(keys, 0, 20)).pages, Each(PartResult::kOk));
  EXPECT_EQ(nodes_[1]->frames[FrameType::kOffer], 0u);
}

TEST_F(ClientFixture, F55_BadCallsAreRefusedAndNameTheField) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(4);
  const auto refused = [&](CallSpec spec, const PageView& pages, const std::string& field) {
    LoadResult result;
    core_->Fetch(spec, pages, result.Take());
    EXPECT_FALSE(result.done) << "never inside the call";
    ASSERT_TRUE(RunUntil(result.done));
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(result.status.message()).find(field), std::string::npos) << result.status;
  };
  Pages pages = MakePages(4);
  CallSpec spec = Spec(keys);
  spec.chain.part_bytes = 0;
  refused(spec, pages.view(), "part_bytes");
  spec = Spec(keys);
  spec.chain.part_bytes = kPartBytesMax + 1;
  refused(spec, pages.view(), "part_bytes");
  spec = Spec(keys);
  spec.coords = {};
  refused(spec, pages.view(), "coords");
  Pages five = MakePages(5);
  refused(Spec(keys), five.view(), "pages");
  Pages short_page = MakePages(4);
  short_page.segments[3].bytes -= 1;
  refused(Spec(keys), short_page.view(), "pages[1].bytes");
  Pages null_page = MakePages(4);
  null_page.segments[4].data = nullptr;
  refused(Spec(keys), null_page.view(), "pages[2].data");
  // No pages, no blocks: nothing to do, no fault.
  LoadResult none;
  core_->Fetch(Spec({}), {}, none.Take());
  ASSERT_TRUE(RunUntil(none.done));
  EXPECT_TRUE(none.status.ok());
}

TEST_F(ClientFixture, TooManyCallsAreRefusedWithoutAffectingOthers) {
  AddNode("node-1");
  nodes_[0]->hold = true;
  Start();
  const auto keys = MakeKeys(2);
  Fill(keys, 2);
  uint32_t ok = 0, refused = 0;
  for (size_t i = 0; i < kOperationsMax + 10; ++i) {
    core_->Lookup(Spec(keys), [&](const LookupOutcome& o) {
      ok += o.status.ok() && o.blocks == 2;
      refused += o.status.code() == absl::StatusCode::kResourceExhausted;
    });
  }
  nodes_[0]->hold = false;
  Settle();
  EXPECT_EQ(refused, 10u);
  EXPECT_EQ(ok, kOperationsMax);
}

}  // namespace
}  // namespace cistern
