#include <gmock/gmock.h>

#include <algorithm>

#include "client/core/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class ClientFault : public ClientFixture {
 protected:
  std::vector<BlockKey> OneNode(uint32_t blocks, bool one_sided) {
    AddNode("node-1");
    nodes_[0]->one_sided = one_sided;
    Start();
    auto keys = MakeKeys(blocks);
    Fill(keys, blocks);
    Pages warm = MakePages(blocks);
    EXPECT_EQ(Fetch(keys, warm).hit, blocks);
    return keys;
  }
  bool Untouched(const Pages& pages, const std::vector<std::vector<std::byte>>& before) const {
    return pages.memory == before;
  }
};

TEST_F(ClientFault, F23_AStoppedPeerEndsByTheDeadlineAndNothingLandsAfter) {
  for (const bool can_cancel : {true, false}) {
    SCOPED_TRACE(can_cancel);
    nodes_.clear();
    map_ = {};
    transport_.nodes.clear();
    core_.reset();
    transport_.can_cancel = can_cancel;
    const auto keys = OneNode(16, /*one_sided=*/false);
    Pages pages = MakePages(16);
    LoadResult result;
    transport_.payload_step = 10'000;
    const Nanos start = clock_.Now();
    core_->Fetch(Spec(keys, 300 * kMillisecond), pages.view(), result.Take());
    for (int i = 0; i < 4; ++i) core_->Poll();  // Some bytes have landed; then it stops.
    nodes_[0]->silent = true;
    ASSERT_TRUE(RunUntil(result.done));
    EXPECT_LE(clock_.Now() - start, 330 * kMillisecond);
    EXPECT_EQ(result.hit, 0u);
    EXPECT_THAT(result.pages, Each(PartResult::kDeadline));
    // The caller has its memory back: whatever the node does now, no byte of it may change.
    for (auto& m : pages.memory) std::fill(m.begin(), m.end(), kCanary);
    const auto before = pages.memory;
    nodes_[0]->silent = false;
    for (int i = 0; i < 50; ++i) {
      Settle();
      clock_.Advance(100 * kMillisecond);
    }
    EXPECT_TRUE(Untouched(pages, before));
    EXPECT_EQ(transport_.fences > 0, !can_cancel);
    transport_.payload_step = 0;
    transport_.fences = 0;
  }
}

TEST_F(ClientFault, F23_APullUnderWayIsFencedBeforeTheCallEnds) {
  const auto keys = OneNode(4, /*one_sided=*/true);
  transport_.async_pulls = transport_.hold_pulls = true;
  Pages pages = MakePages(4);
  LoadResult result;
  core_->Fetch(Spec(keys, 90 * kMillisecond), pages.view(), result.Take());
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kDeadline));
  EXPECT_EQ(transport_.fences, 1u);
  const auto before = pages.memory;
  transport_.hold_pulls = false;
  Settle();
  EXPECT_TRUE(Untouched(pages, before));
  EXPECT_EQ(Counter("client_requests_open"), 0u);
  // One reconnect, at once.
  transport_.async_pulls = false;
  EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
}

TEST_F(ClientFault, F30_CancelAtEveryTenthOfTheWayLeavesTheMemoryAlone) {
  const auto keys = OneNode(10, /*one_sided=*/false);
  const uint64_t total = 10u * coords_.size() * kPartBytes;
  for (const bool can_cancel : {true, false}) {
    transport_.can_cancel = can_cancel;
    for (uint32_t tenth = 0; tenth <= 10; ++tenth) {
      SCOPED_TRACE(tenth);
      transport_.payload_step = static_cast<uint32_t>(total / 10);
      Pages pages = MakePages(10);
      LoadResult result;
      const OpId op = core_->Fetch(Spec(keys), pages.view(), result.Take());
      for (uint32_t i = 0; i < tenth; ++i) core_->Poll();
      const bool was_done = result.done;
      core_->Cancel(op);
      EXPECT_EQ(result.done, was_done) << "callbacks run in Poll";
      core_->Poll();
      ASSERT_TRUE(RunUntil(result.done));
      EXPECT_EQ(result.calls, 1);
      for (const PartResult r : result.pages)
        EXPECT_TRUE(r == PartResult::kCancelled || r == PartResult::kOk);
      const auto before = pages.memory;
      Settle();
      EXPECT_TRUE(Untouched(pages, before));
    }
  }
}

TEST_F(ClientFault, F26_OneConnectionAttemptAtATimeWithBackOff) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(2);
  Fill(keys, 2);
  options_.negative_ttl = 0;
  nodes_[0]->refuse = true;
  // Down: attempts become rarer. 32 callers every 5 ms for 3 s.
  uint64_t calls = 0;
  std::vector<Nanos> attempts_at;
  uint64_t seen = 0;
  for (int i = 0; i < 600; ++i) {
    for (int c = 0; c < 32; ++c)
      core_->Lookup(Spec(keys, 50 * kMillisecond), [&](const LookupOutcome&) { ++calls; });
    Settle();
    if (transport_.connect_calls["sim:node-1"] != seen) {
      EXPECT_EQ(transport_.connect_calls["sim:node-1"], seen + 1);
      ++seen;
      attempts_at.push_back(clock_.Now());
    }
    clock_.Advance(5 * kMillisecond);
  }
  EXPECT_EQ(calls, 600u * 32);
  EXPECT_LE(seen, 12u) << "exponential back-off";
  // Back: 32 at once, one attempt, 32 successes.
  nodes_[0]->refuse = false;
  clock_.Advance(5 * kSecond);
  uint32_t hits = 0;
  for (int c = 0; c < 32; ++c) {
    core_->Lookup(Spec(keys), [&](const LookupOutcome& o) { hits += o.blocks == 2; });
  }
  Settle();
  EXPECT_EQ(hits, 32u);
  EXPECT_EQ(transport_.connect_calls["sim:node-1"], seen + 1);
}

TEST_F(ClientFault, F31_BreakerOpensAfterFailuresAndClosesWhenTheNodeIsBack) {
  options_.negative_ttl = 0;
  options_.breaker_failures = 3;
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(2);
  Fill(keys, 2);
  EXPECT_EQ(Lookup(keys).blocks, 2u);
  nodes_[0]->silent = true;
  for (int i = 0; i < 3; ++i) {
    const Nanos start = clock_.Now();
    const LookupOutcome o = Lookup(keys, 5 * kMillisecond);
    EXPECT_TRUE(o.status.ok());
    EXPECT_EQ(o.blocks, 0u);
    EXPECT_EQ(o.stopped_by, PartResult::kDeadline);
    EXPECT_LE(clock_.Now() - start, 6 * kMillisecond);
  }
  EXPECT_EQ(Counter("client_breaker_open_total"), 1u);
  // Open: answered without a frame, without waiting, within 50 us of real time each.
  BootClock real;
  const uint64_t sends = transport_.sends;
  const Nanos virtual_start = clock_.Now();
  const Nanos start = real.Now();
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(Lookup(keys, 5 * kMillisecond).stopped_by, PartResult::kBreakerOpen);
  EXPECT_LT(real.Now() - start, 1000 * 50 * kMicrosecond);
  EXPECT_EQ(clock_.Now(), virtual_start);
  EXPECT_EQ(transport_.sends, sends);
  // Still down: one probe per interval.
  clock_.Advance(options_.breaker_retry);
  for (int i = 0; i < 100; ++i) {
    core_->Lookup(Spec(keys, 5 * kMillisecond), [](const LookupOutcome&) {});
  }
  EXPECT_EQ(transport_.sends, sends + 1);
  clock_.Advance(10 * kMillisecond);
  Settle();
  // Back: the next probe closes it.
  nodes_[0]->silent = false;
  clock_.Advance(options_.breaker_retry);
  EXPECT_EQ(Lookup(keys).blocks, 2u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Lookup(keys).blocks, 2u);
}

TEST_F(ClientFault, F32_OnlyTheFirstPaysForADeadPeerAndAPutClearsIt) {
  options_.breaker_failures = 1000;
  const auto keys = OneNode(4, /*one_sided=*/true);
  nodes_[0]->silent = true;
  Nanos start = clock_.Now();
  EXPECT_EQ(Lookup(keys, 500 * kMillisecond).stopped_by, PartResult::kDeadline);
  EXPECT_GE(clock_.Now() - start, 500 * kMillisecond);
  start = clock_.Now();
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(Lookup(keys, 500 * kMillisecond).stopped_by, PartResult::kPeerGone);
  EXPECT_EQ(clock_.Now(), start) << "nothing waited";
  EXPECT_GE(Counter("client_negative_skips_total"), 1000u);
  // The router is told, once; and again when the node is found dead again later.
  ASSERT_TRUE(core_->HasGonePeers());
  EXPECT_THAT(core_->TakeGonePeers(), ElementsAre(GonePeer{"node-1", 1}));
  EXPECT_FALSE(core_->HasGonePeers());
  clock_.Advance(options_.negative_ttl + kMillisecond);
  EXPECT_EQ(Lookup(keys, 500 * kMillisecond).stopped_by, PartResult::kDeadline);
  EXPECT_EQ(Lookup(keys, 500 * kMillisecond).stopped_by, PartResult::kPeerGone);
  EXPECT_THAT(core_->TakeGonePeers(), ElementsAre(GonePeer{"node-1", 1}));
  EXPECT_EQ(Counter("client_peer_hints_total"), 2u);
  // A store that was on its way is answered after all: the entry is gone.
  clock_.Advance(options_.negative_ttl + kMillisecond);
  const auto fresh = MakeKeys(1);
  Pages source = MakePages(1);
  std::vector<ConstSegment> segments;
  for (const Segment& s : source.segments) segments.push_back({s.data, s.bytes});
  StoreResult stored;
  nodes_[0]->silent = false;
  core_->Store(Spec(fresh), 0, {segments, source.ends}, stored.Take());
  ASSERT_TRUE(RunUntil(stored.done));
  EXPECT_EQ(stored.pages[0], PartResult::kOk);
  EXPECT_EQ(Lookup(keys).blocks, 4u);
}

TEST_F(ClientFault, F32_RefusedConnectionIsRememberedForTheNegativeTtl) {
  AddNode("node-1");
  nodes_[0]->refuse = true;
  Start();
  const auto keys = MakeKeys(2);
  EXPECT_EQ(Lookup(keys).stopped_by, PartResult::kPeerGone);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Lookup(keys).stopped_by, PartResult::kPeerGone);
  EXPECT_EQ(transport_.connect_calls["sim:node-1"], 1u);
  EXPECT_THAT(core_->TakeGonePeers(), ElementsAre(GonePeer{"node-1", 1}));
}

TEST_F(ClientFault, F32_WhatTheRouterIsToldIsBounded) {
  for (size_t i = 0; i <= kGonePeersMax; ++i) {
    AddNode("node-" + std::to_string(i));
    nodes_.back()->refuse = true;
    map_.nodes.back().shards.push_back(map_.nodes.back().shards[0]);  // Two peers of one process.
  }
  std::sort(map_.nodes.begin(), map_.nodes.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  Start();
  core_->ConnectAll();
  Settle();
  EXPECT_EQ(core_->TakeGonePeers().size(), kGonePeersMax);
  EXPECT_EQ(Counter("client_peer_hints_total"), kGonePeersMax);
  EXPECT_GE(Counter("client_peer_hints_dropped_total"), 1u);
}

TEST_F(ClientFault, LostConnectionEndsSiblingsWithPeerGoneAndReconnectsOnce) {
  const auto keys = OneNode(4, /*one_sided=*/true);
  nodes_[0]->hold = true;
  std::vector<LoadResult> results(5);
  std::vector<Pages> memory;
  for (int i = 0; i < 5; ++i) memory.push_back(MakePages(4));
  for (size_t i = 0; i < 5; ++i) core_->Fetch(Spec(keys), memory[i].view(), results[i].Take());
  Settle();
  transport_.Drop(*nodes_[0]);
  nodes_[0]->hold = false;
  for (LoadResult& r : results) {
    ASSERT_TRUE(RunUntil(r.done));
    EXPECT_THAT(r.pages, Each(PartResult::kPeerGone));
  }
  clock_.Advance(kSecond);
  Pages pages = MakePages(4);
  EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
  EXPECT_EQ(nodes_[0]->connects, 2u);
}

TEST_F(ClientFault, SilentPeerIsPingedThenCutOff) {
  const auto keys = OneNode(2, /*one_sided=*/true);
  nodes_[0]->silent = true;
  Pages pages = MakePages(2);
  LoadResult result;
  const Nanos start = clock_.Now();
  core_->Fetch(Spec(keys, 20 * kSecond), pages.view(), result.Take());
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kPeerGone));
  EXPECT_LT(clock_.Now() - start, 3 * kSecond);
  EXPECT_GE(nodes_[0]->frames[FrameType::kPing], 5u);
  EXPECT_EQ(Counter("client_silent_peers_total"), 1u);
}

TEST_F(ClientFault, SlowPeerThatAnswersPingsIsNotCutOff) {
  const auto keys = OneNode(2, /*one_sided=*/true);
  Pages pages = MakePages(2);
  LoadResult result;
  uint32_t plans = 0;
  nodes_[0]->edit_plan = [&](PlanReply&) { ++plans; };
  nodes_[0]->hold_type = FrameType::kPlanReply;
  core_->Fetch(Spec(keys, 10 * kSecond), pages.view(), result.Take());
  const Nanos start = clock_.Now();
  while (clock_.Now() - start < 5 * kSecond) {
    Settle();
    clock_.Set(std::min(core_->NextWake(), clock_.Now() + kSecond));
  }
  EXPECT_FALSE(result.done);
  nodes_[0]->hold_type = {};
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_EQ(Counter("client_silent_peers_total"), 0u);
  EXPECT_EQ(nodes_[0]->connects, 1u);
}

TEST_F(ClientFault, DestroyingTheClientEndsEveryCallCancelledAndFences) {
  const auto keys = OneNode(4, /*one_sided=*/false);
  nodes_[0]->hold = true;
  Pages pages = MakePages(4);
  LoadResult result;
  core_->Fetch(Spec(keys), pages.view(), result.Take());
  core_.reset();
  EXPECT_EQ(result.calls, 1);
  EXPECT_THAT(result.pages, Each(PartResult::kCancelled));
  EXPECT_EQ(transport_.peer_count(), 0u);
}

TEST_F(ClientFault, AnotherProcessAtTheAddressIsNotTalkedTo) {
  AddNode("node-1");
  nodes_[0]->incarnation = 7;  // The map still says 1.
  Start();
  const auto keys = MakeKeys(2);
  Fill(keys, 2);
  EXPECT_EQ(Lookup(keys).stopped_by, PartResult::kPeerGone);
  EXPECT_EQ(nodes_[0]->frames[FrameType::kLookup], 0u);
  EXPECT_NE(core_->PeerRows()[0].why.find("incarnation"), std::string::npos) << core_->PeerRows()[0].why;
}

TEST_F(ClientFault, ARefusedTicketIsTold) {
  AddNode("node-1");
  Start();
  const auto keys = MakeKeys(1);
  Fill(keys, 1);
  nodes_[0]->refuse = true;
  EXPECT_EQ(Lookup(keys).blocks, 0u);
  EXPECT_FALSE(core_->TakeTicketRefused());
  nodes_[0]->refuse = false;
  nodes_[0]->denies = true;
  clock_.Advance(10 * kSecond);
  EXPECT_EQ(Lookup(keys).blocks, 0u);
  EXPECT_TRUE(core_->TakeTicketRefused());
  EXPECT_FALSE(core_->TakeTicketRefused()) << "once";
}

}  // namespace
}  // namespace cistern
