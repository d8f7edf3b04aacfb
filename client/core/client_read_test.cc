#include <gmock/gmock.h>

#include "client/core/testing/client_fixture.h"
#include "core/crc32c.h"

namespace cistern {
namespace {

using ::testing::Each;

// Every read runs over a path with one-sided reads and over one without.
class ClientRead : public ClientFixture, public ::testing::WithParamInterface<bool> {
 protected:
  void AddNodes(int count) {
    for (int i = 1; i <= count; ++i) {
      AddNode("node-" + std::to_string(i));
      nodes_.back()->one_sided = GetParam();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, ClientRead, ::testing::Bool(),
                         [](const auto& path) { return path.param ? "OneSided" : "Inline"; });

TEST_P(ClientRead, FetchBringsEveryPageOfAChainOverSeveralOwners) {
  AddNodes(3);
  Start();
  const auto keys = MakeKeys(40);
  Fill(keys, 40);
  Pages pages = MakePages(40);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.hit, 40u);
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  EXPECT_EQ(result.bytes, 40u * 2 * kPartBytes);
  for (uint32_t i = 0; i < 40; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  EXPECT_TRUE(CanariesWhole(pages));
  EXPECT_EQ(Counter("client_hit_blocks_total"), 40u);
  EXPECT_EQ(Counter("client_miss_blocks_total"), 0u);
  Settle();
  for (const auto& node : nodes_) EXPECT_TRUE(node->plans.empty()) << "a lease outlived the fetch";
}

TEST_P(ClientRead, HitEndsAtTheFirstMissingBlockOfAnyOwner) {
  AddNodes(3);
  Start();
  const auto keys = MakeKeys(40);
  Fill(keys, 40);
  OwnerOf(keys, 17).parts.erase({keys[17].hash, coords_[1].Packed()});  // One of two parts is enough to miss.
  Pages pages = MakePages(40);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_EQ(result.hit, 17u);
  for (uint32_t i = 0; i < 40; ++i)
    EXPECT_EQ(result.pages[i], i < 17 ? PartResult::kOk : PartResult::kMiss) << i;
  const LookupOutcome lookup = Lookup(keys);
  EXPECT_EQ(lookup.blocks, 17u);
  EXPECT_EQ(lookup.stopped_by, PartResult::kMiss);
  EXPECT_EQ(Counter("client_lookup_blocks_total"), 80u);
  EXPECT_EQ(Counter("client_hit_blocks_total"), 34u);
  EXPECT_EQ(Counter("client_miss_blocks_total"), 46u);
}

TEST_P(ClientRead, PlanThenLoadAnyRangeThenRelease) {
  AddNodes(2);
  Start();
  const auto keys = MakeKeys(30);
  Fill(keys, 20);
  const PlanOutcome plan = Plan(keys);
  EXPECT_EQ(plan.blocks, 20u);
  EXPECT_EQ(core_->PlanOwner(plan.plan, 19), OwnerOf(keys, 19).id);
  Pages pages = MakePages(7);
  const LoadResult result = Load(plan.plan, 11, pages);
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  for (uint32_t i = 0; i < 7; ++i) EXPECT_TRUE(Right(pages, i, keys[11 + i])) << i;
  core_->Release(plan.plan);
  Settle();
  for (const auto& node : nodes_) EXPECT_TRUE(node->plans.empty());
  const LoadResult after = Load(plan.plan, 0, pages);
  EXPECT_EQ(after.status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(ClientRead, LoadOfSomeSlicesTakesOnlyThose) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  const PlanOutcome plan = Plan(keys);
  std::vector<std::byte> memory(kPartBytes);
  const Segment segment{memory.data(), memory.size()};
  const uint32_t end = 1;
  LoadResult result;
  core_->Load(plan.plan, 2, {{&segment, 1}, {&end, 1}}, {&coords_[1], 1}, 0, result.Take());
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_EQ(result.pages[0], PartResult::kOk);
  EXPECT_EQ(memory, BytesOf(keys[2], coords_[1]));
}

TEST_P(ClientRead, OldOwnerIsAskedForWhatTheNewOneLacks) {
  AddNodes(3);
  const auto keys = MakeKeys(64);
  Start();
  Fill(keys, 64);
  map_.open_moves.push_back({1, {{"node-1", 1}, {"node-2", 1}, {"node-3", 1}}});
  AddNode("node-4");
  nodes_.back()->one_sided = GetParam();
  map_.epoch = 2;
  core_->SetMap(map_);
  // Some runs have been stored on the new owner since, and only there.
  const FakeNode* fresh = nodes_.back().get();
  uint32_t moved = 0;
  for (uint32_t b = 0; b < 64; ++b) {
    if (&OwnerOf(keys, b) != fresh) continue;
    const uint32_t run = RunFirst(b, map_.run_blocks_cap);
    if ((run / 8) % 2 == 0) continue;
    ++moved;
    for (const auto& node : nodes_) {
      for (const PartCoord& c : coords_) node->parts.erase({keys[b].hash, c.Packed()});
    }
    for (const PartCoord& c : coords_) nodes_.back()->Add(keys[b], c, BytesOf(keys[b], c));
  }
  Pages pages = MakePages(64);
  const LoadResult result = Fetch(keys, pages);
  EXPECT_EQ(result.hit, 64u) << "moved " << moved;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_TRUE(Right(pages, i, keys[i])) << i;
  EXPECT_GT(Counter("client_old_owner_asks_total"), 0u);
}

// The faults of each stage that a part passes through on its way; each hits block `bad` alone.
struct InjectedFault {
  const char* stage;
  PartResult want;
  std::function<void(FakeNode&)> inject;
  bool inline_too;
};

std::vector<InjectedFault> FaultsOf(const BlockKey& bad) {
  const auto on_bad = [bad](auto edit) {
    return [bad, edit](PlanReply& reply) {
      for (PartDescriptor& d : reply.parts) {
        if (d.block == bad && d.coord.slice == 1) edit(d);
      }
    };
  };
  return {
      {"index: another key", PartResult::kCorrupt,
       [on_bad](FakeNode& n) { n.edit_plan = on_bad([](PartDescriptor& d) { d.block.fingerprint ^= 1; }); },
       true},
      {"index: other coord", PartResult::kCorrupt,
       [on_bad](FakeNode& n) { n.edit_plan = on_bad([](PartDescriptor& d) { d.coord.slice = 9; }); }, true},
      {"index: odd generation", PartResult::kStale,
       [on_bad](FakeNode& n) { n.edit_plan = on_bad([](PartDescriptor& d) { d.generation |= 1; }); }, true},
      {"checksum in the index", PartResult::kCorrupt,
       [on_bad](FakeNode& n) { n.edit_plan = on_bad([](PartDescriptor& d) { d.crc ^= 1; }); }, true},
      {"transfer: bytes flipped", PartResult::kCorrupt,
       [bad](FakeNode& n) {
         n.edit_pull = [bad](PullResult& r, std::vector<std::byte>& bytes) {
           if (r.trailer.fingerprint == bad.fingerprint) bytes[100] ^= std::byte{4};
         };
       },
       false},
      {"transfer: failed", PartResult::kPeerGone,
       [bad](FakeNode& n) {
         n.edit_pull = [bad](PullResult& r, std::vector<std::byte>&) {
           if (r.trailer.fingerprint == bad.fingerprint) r.result = PartResult::kPeerGone;
         };
       },
       false},
      {"slot rewritten", PartResult::kStale,
       [bad](FakeNode& n) {
         n.edit_pull = [bad](PullResult& r, std::vector<std::byte>&) {
           if (r.trailer.fingerprint == bad.fingerprint) r.trailer.generation += 2;
         };
       },
       false},
  };
}

TEST_P(ClientRead, F11_EveryInjectedFaultIsThatPagesErrorCode) {
  AddNodes(2);
  Start();
  const auto keys = MakeKeys(16);
  Fill(keys, 16);
  for (const InjectedFault& row : FaultsOf(keys[5])) {
    if (!GetParam() && !row.inline_too) continue;
    SCOPED_TRACE(row.stage);
    for (const auto& node : nodes_) {
      node->edit_plan = nullptr;
      node->edit_pull = nullptr;
      row.inject(*node);
    }
    Pages pages = MakePages(16);
    const LoadResult fetched = Fetch(keys, pages);
    const PlanOutcome plan = Plan(keys);
    Pages again = MakePages(16);
    const LoadResult loaded = Load(plan.plan, 0, again);
    for (const LoadResult* result : {&fetched, &loaded}) {
      ASSERT_EQ(result->pages.size(), 16u);  // OK + error = asked.
      for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(result->pages[i], i == 5 ? row.want : PartResult::kOk) << i;
      EXPECT_EQ(result->bytes, 15u * 2 * kPartBytes);
    }
    EXPECT_TRUE(CanariesWhole(pages));
    core_->Release(plan.plan);
  }
}

TEST_P(ClientRead, F11_FlippedPayloadBitIsCorruptForThatPageAlone) {
  if (GetParam()) GTEST_SKIP() << "bytes come by pulls here";
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(8);
  Fill(keys, 8);
  nodes_[0]->edit_payload = [](std::vector<std::byte>& bytes) {
    if (bytes.size() > 3 * 2 * kPartBytes) bytes[3 * 2 * kPartBytes + 17] ^= std::byte{1};
  };
  Pages pages = MakePages(8);
  const LoadResult result = Fetch(keys, pages);
  for (uint32_t i = 0; i < 8; ++i)
    EXPECT_EQ(result.pages[i], i == 3 ? PartResult::kCorrupt : PartResult::kOk) << i;
}

TEST_P(ClientRead, RepliesThatDoNotFitTheirRequestFailIt) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  Pages pages = MakePages(4);
  nodes_[0]->edit_plan = [](PlanReply& reply) { reply.incarnation = 99; };
  EXPECT_EQ(Fetch(keys, pages).pages[0], PartResult::kStale);
  nodes_[0]->edit_plan = [](PlanReply& reply) { reply.hit_blocks = 2; };
  EXPECT_EQ(Fetch(keys, pages).pages[0], PartResult::kCorrupt);
  nodes_[0]->edit_plan = [](PlanReply& reply) { reply.plan_id ^= 1; };
  EXPECT_EQ(Fetch(keys, pages).pages[0], PartResult::kCorrupt);
  EXPECT_GE(Counter("client_bad_frames_total"), 2u);
  nodes_[0]->edit_plan = nullptr;
  nodes_[0]->answer_error = [](FrameType type) { return type == FrameType::kPlan; };
  EXPECT_EQ(Fetch(keys, pages).pages[0], PartResult::kBusy);
}

TEST_P(ClientRead, F24_APlanOfAnOldIncarnationIsStaleWithoutTouchingTheNetwork) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(6);
  Fill(keys, 6);
  const PlanOutcome plan = Plan(keys);
  ASSERT_EQ(plan.blocks, 6u);
  // The node restarts: a new incarnation at the same address, with the same bytes.
  FakeNode* old = nodes_[0].get();
  retired_.insert(old);
  transport_.Drop(*old);
  map_.nodes.clear();
  AddNode("node-1", 2);
  nodes_.back()->one_sided = GetParam();
  nodes_.back()->parts = old->parts;
  map_.epoch = 2;
  core_->SetMap(map_);
  const uint64_t sends = transport_.sends;
  const uint64_t pulls = old->pulls + nodes_.back()->pulls;
  Pages pages = MakePages(6);
  const LoadResult result = Load(plan.plan, 0, pages);
  EXPECT_THAT(result.pages, Each(PartResult::kStale));
  EXPECT_EQ(transport_.sends, sends);
  EXPECT_EQ(old->pulls + nodes_.back()->pulls, pulls);
  EXPECT_EQ(nodes_.back()->connects, 0u);
  EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
}

TEST_P(ClientRead, F24_ManyRestartsUnderLoadEndInOkMissOrStale) {
  AddNodes(1);
  Start();
  const auto keys = MakeKeys(12);
  Fill(keys, 12);
  const auto parts = nodes_[0]->parts;
  transport_.async_pulls = true;
  for (uint64_t round = 2; round < 102; ++round) {
    std::vector<std::unique_ptr<LoadResult>> results;
    std::vector<Pages> memory;
    for (int i = 0; i < 8; ++i) memory.push_back(MakePages(12));
    for (int i = 0; i < 8; ++i) {
      results.push_back(std::make_unique<LoadResult>());
      core_->Fetch(Spec(keys), memory[static_cast<size_t>(i)].view(), results.back()->Take());
    }
    for (uint64_t i = 0; i < random_.Below(12); ++i) core_->Poll();
    FakeNode* old = nodes_.back().get();
    retired_.insert(old);
    transport_.Drop(*old);
    map_.nodes.clear();
    AddNode("node-1", round);
    nodes_.back()->one_sided = GetParam();
    nodes_.back()->parts = parts;
    ++map_.epoch;
    core_->SetMap(map_);
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(RunUntil(results[i]->done));
      EXPECT_EQ(results[i]->calls, 1);
      for (size_t p = 0; p < 12; ++p) {
        const PartResult r = results[i]->pages[p];
        EXPECT_TRUE(r == PartResult::kOk || r == PartResult::kMiss || r == PartResult::kStale ||
                    r == PartResult::kPeerGone)
            << PartResultName(r);
        if (r == PartResult::kOk) {
          EXPECT_TRUE(Right(memory[i], p, keys[p]));
        }
      }
    }
  }
  EXPECT_EQ(Counter("client_requests_open"), 0u);
}

TEST_P(ClientRead, LongReadsAreCutIntoWindows) {
  AddNodes(1);
  coords_ = {{0, 0, 0}};
  Start();
  const uint32_t blocks = (40u << 20) / kPartBytes;  // 40 MiB: three windows of kInlineAskBytesMax.
  const auto keys = MakeKeys(blocks);
  Fill(keys, blocks);
  Pages pages = MakePages(blocks);
  EXPECT_THAT(Fetch(keys, pages).pages, Each(PartResult::kOk));
  EXPECT_GE(nodes_[0]->frames[FrameType::kPlan], 3u);  // Before the path is known every fetch is cut.
  const PlanOutcome plan = Plan(keys);
  ASSERT_EQ(plan.blocks, blocks);
  EXPECT_THAT(Load(plan.plan, 0, pages).pages, Each(PartResult::kOk));
  EXPECT_EQ(nodes_[0]->frames[FrameType::kRead] >= 3, !GetParam());
}

TEST_F(ClientFixture, F17_EveryGetFormOfALateReadIsLeaseExpired) {
  AddNode("node-1");
  nodes_[0]->ttl_ms = 100;
  transport_.async_pulls = true;
  Start();
  const auto keys = MakeKeys(4);
  Fill(keys, 4);
  for (int round = 0; round < 250; ++round) {
    const uint32_t first = static_cast<uint32_t>(random_.Below(4));
    const bool batch = random_.Chance(0.5);
    const uint32_t count = batch ? 4 - first : 1;
    const bool fetch = random_.Chance(0.3);
    Pages pages = MakePages(fetch ? 4 : count);
    LoadResult result;
    transport_.hold_pulls = true;
    nodes_[0]->hold = false;
    if (fetch) {
      core_->Fetch(Spec(keys), pages.view(), result.Take());
    } else {
      const PlanOutcome plan = Plan(keys);
      core_->Load(plan.plan, first, pages.view(), {}, 0, result.Take());
    }
    for (int i = 0; i < 8; ++i) core_->Poll();
    nodes_[0]->hold = true;  // Renewals are not answered either.
    clock_.Advance(500 * kMillisecond);
    for (auto& [key, part] : nodes_[0]->parts)
      part.bytes.assign(kPartBytes, std::byte{0x55});  // Evicted, overwritten.
    transport_.hold_pulls = false;
    ASSERT_TRUE(RunUntil(result.done));
    EXPECT_THAT(result.pages, Each(PartResult::kLeaseExpired)) << "fetch " << fetch << " first " << first;
    nodes_[0]->hold = false;
    Settle();
    Fill(keys, 4);
  }
}

TEST_F(ClientFixture, LongLoadsRenewTheirLeases) {
  AddNode("node-1");
  nodes_[0]->ttl_ms = 100;
  transport_.async_pulls = true;
  Start();
  const auto keys = MakeKeys(8);
  Fill(keys, 8);
  const PlanOutcome plan = Plan(keys);
  Pages pages = MakePages(8);
  LoadResult result;
  transport_.hold_pulls = true;
  core_->Load(plan.plan, 0, pages.view(), {}, 0, result.Take());
  for (int i = 0; i < 20; ++i) {
    Settle();
    clock_.Advance(25 * kMillisecond);
  }
  transport_.hold_pulls = false;
  ASSERT_TRUE(RunUntil(result.done));
  EXPECT_THAT(result.pages, Each(PartResult::kOk));
  EXPECT_GE(nodes_[0]->frames[FrameType::kRenew], 5u);
}

}  // namespace
}  // namespace cistern
