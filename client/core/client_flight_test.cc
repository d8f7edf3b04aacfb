#include <gmock/gmock.h>

#include "client/core/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;

class ClientFlight : public ClientFixture {
 protected:
  void Begin(const std::vector<BlockKey>& keys, size_t count, Nanos deadline = 0) {
    results_ = std::vector<LoadResult>(count);
    for (size_t i = 0; i < count; ++i) memory_.push_back(MakePages(static_cast<uint32_t>(keys.size())));
    for (size_t i = 0; i < count; ++i) {
      ops_.push_back(core_->Fetch(Spec(keys, deadline), memory_[i].view(), results_[i].Take()));
    }
  }
  std::vector<LoadResult> results_;
  std::vector<Pages> memory_;
  std::vector<OpId> ops_;
};

TEST_F(ClientFlight, F53_EqualFetchesShareOneTransfer) {
  AddNode("node-1");
  AddNode("node-2");
  Start();
  const auto keys = MakeKeys(64);
  Fill(keys, 50);
  Begin(keys, 32);
  for (size_t i = 0; i < 32; ++i) {
    ASSERT_TRUE(RunUntil(results_[i].done));
    EXPECT_EQ(results_[i].hit, 50u);
    for (uint32_t p = 0; p < 64; ++p) {
      EXPECT_EQ(results_[i].pages[p], p < 50 ? PartResult::kOk : PartResult::kMiss);
      if (p < 50) {
        EXPECT_TRUE(Right(memory_[i], p, keys[p]));
      }
    }
    EXPECT_TRUE(CanariesWhole(memory_[i]));
  }
  EXPECT_LE(nodes_[0]->pulls + nodes_[1]->pulls, 64u * 2);
  EXPECT_EQ(Counter("client_single_flight_shared_total"), 31u);
  EXPECT_EQ(Counter("client_hit_blocks_total"), 32u * 50);
  EXPECT_EQ(Counter("client_miss_blocks_total"), 32u * 14);
}

TEST_F(ClientFlight, F53_CancellingAnyOfThemFailsNoOther) {
  AddNode("node-1");
  nodes_[0]->one_sided = false;
  Start();
  const auto keys = MakeKeys(16);
  Fill(keys, 16);
  for (size_t cancelled = 0; cancelled < 4; ++cancelled) {
    SCOPED_TRACE(cancelled);
    memory_.clear();
    ops_.clear();
    transport_.payload_step = 20'000;
    Begin(keys, 4);
    for (int i = 0; i < 4; ++i) core_->Poll();
    core_->Cancel(ops_[cancelled]);
    if (cancelled == 0) core_->Cancel(ops_[1]);  // And the one that took over.
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(RunUntil(results_[i].done));
      EXPECT_EQ(results_[i].calls, 1);
      const bool gone = i == cancelled || (cancelled == 0 && i == 1);
      EXPECT_THAT(results_[i].pages, Each(gone ? PartResult::kCancelled : PartResult::kOk)) << i;
      for (uint32_t p = 0; p < 16 && !gone; ++p) EXPECT_TRUE(Right(memory_[i], p, keys[p]));
    }
  }
}

TEST_F(ClientFlight, OtherChainsAndOtherSlicesDoNotShare) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(8);
  const auto other = MakeKeys(8);
  Fill(keys, 8);
  Fill(other, 8);
  Pages a = MakePages(8), b = MakePages(8), c = MakePages(7);
  LoadResult ra, rb, rc;
  core_->Fetch(Spec(keys), a.view(), ra.Take());
  core_->Fetch(Spec(other), b.view(), rb.Take());
  core_->Fetch(Spec(keys), c.view(), rc.Take());
  ASSERT_TRUE(RunUntil(ra.done) && RunUntil(rb.done) && RunUntil(rc.done));
  EXPECT_TRUE(Right(a, 7, keys[7]));
  EXPECT_TRUE(Right(b, 7, other[7]));
  EXPECT_EQ(rc.pages.size(), 7u);
  EXPECT_EQ(Counter("client_single_flight_shared_total"), 0u);
}

TEST_F(ClientFlight, AFollowersShorterDeadlineIsItsOwn) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  nodes_[0]->hold_type = FrameType::kPlanReply;
  Pages a = MakePages(4), b = MakePages(4);
  LoadResult ra, rb;
  core_->Fetch(Spec(keys, 5 * kSecond), a.view(), ra.Take());
  core_->Fetch(Spec(keys, 100 * kMillisecond), b.view(), rb.Take());
  ASSERT_TRUE(RunUntil(rb.done));
  EXPECT_FALSE(ra.done);
  EXPECT_THAT(rb.pages, Each(PartResult::kDeadline));
  nodes_[0]->hold_type = {};
  ASSERT_TRUE(RunUntil(ra.done));
  EXPECT_THAT(ra.pages, Each(PartResult::kOk));
  EXPECT_FALSE(Right(b, 0, keys[0])) << "nothing lands after the end of a call";
}

}  // namespace
}  // namespace cistern
