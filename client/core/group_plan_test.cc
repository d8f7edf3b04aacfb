#include "client/core/group_plan.h"

#include "client/core/testing/client_fixture.h"
#include "gmock/gmock.h"

namespace cistern {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kBlockTokens = 16;

layout::Group GroupOf(const char* name, layout::Family family, uint32_t elements) {
  layout::Plane plane;
  plane.name = name;
  plane.dtype = "int8";
  plane.elements = elements;
  plane.scale_rule = "none";
  layout::Segment segment;
  segment.name = name;
  segment.layers = {0};
  segment.tokens_per_row = family == layout::Family::kTailState ? 0 : 1;
  segment.planes = {plane};
  layout::Group group;
  group.name = name;
  group.family = family;
  group.segments = {segment};
  return group;
}

// A history of 16 x 256 bytes a block, a draft layer's of the same that looks one block further, a state of
// 3000.
layout::Layout Hybrid(bool draft) {
  layout::Layout out;
  out.unit_tokens = out.align_tokens = out.block_tokens = kBlockTokens;
  out.groups = {GroupOf("kv", layout::Family::kHistory, 256),
                GroupOf("state", layout::Family::kTailState, 3000)};
  if (draft) {
    out.groups.push_back(GroupOf("draft", layout::Family::kHistory, 256));
    out.groups.back().lookahead_tokens = 16;
  }
  return out;
}

class GroupPlan : public ClientFixture {
 protected:
  GroupPlan() {
    AddNode("a");
    AddNode("b");
    for (auto& node : nodes_) node->tells_detail = true;
  }
  void Begin(bool draft = false) {
    const layout::Layout hybrid = Hybrid(draft);
    ASSERT_TRUE(layout::Validate(hybrid).ok()) << layout::Validate(hybrid);
    layout_ = MakeGroupLayout(hybrid);
    Start();
    keys_ = MakeKeys(40);
  }
  void FillGroup(uint8_t group, uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; ++b)
      OwnerOf(keys_, b).Add(keys_[b], {group, 0, 0}, BytesOf(keys_[b], {group, 0, 0}));
  }
  // A tail at the end of the first `blocks` blocks; `whole`: with its part, not only by word.
  void FillTail(uint32_t blocks, bool whole = true) {
    FakeNode& owner = OwnerOf(keys_, blocks - 1);
    owner.tails.insert(keys_[blocks - 1].hash);
    std::vector<std::byte> bytes = BytesOf(keys_[blocks - 1], {1, 0, 0});
    bytes.resize(3000);
    if (whole) owner.Add(keys_[blocks - 1], {1, 0, 0}, std::move(bytes));
  }
  GroupPlanOutcome Find(bool lease = true, std::optional<BlockHash> request = {}, GroupPlanSpec spec = {}) {
    spec.request = request;
    spec.chain.blocks = keys_;
    spec.layout = layout_;
    spec.max_tokens = 40 * kBlockTokens;
    spec.lease = lease;
    GroupPlanOutcome result;
    bool done = false;
    PlanGroups(*core_, clock_, spec, [&](GroupPlanOutcome o) {
      EXPECT_FALSE(done);
      result = std::move(o);
      done = true;
    });
    EXPECT_TRUE(RunUntil(done));
    return result;
  }
  size_t LivePlans() {
    core_->Poll();
    size_t plans = 0;
    for (const auto& node : nodes_) plans += node->plans.size();
    return plans;
  }

  std::shared_ptr<const GroupLayout> layout_;
  std::vector<BlockKey> keys_;
};

TEST_F(GroupPlan, EndsAtTheDeepestTailThatTheHistoryReaches) {
  Begin();
  FillGroup(0, 30);
  for (const uint32_t at : {3, 20, 35}) FillTail(at);
  const GroupPlanOutcome hit = Find();
  EXPECT_EQ(hit.hit.tokens, 20 * kBlockTokens);
  EXPECT_EQ(hit.hit.history_tokens, 30 * kBlockTokens);
  EXPECT_EQ(hit.why, MissReason::kNoTail);
  ASSERT_THAT(hit.history, SizeIs(1));
  std::vector<std::byte> page(3000);
  const Segment segment{page.data(), page.size()};
  const uint32_t end = 1;
  LoadResult load;
  core_->Load(hit.tail, 19, {{&segment, 1}, {&end, 1}}, {}, 0, load.Take());
  EXPECT_TRUE(RunUntil(load.done));
  EXPECT_EQ(load.pages, std::vector{PartResult::kOk});
  std::vector<std::byte> want = BytesOf(keys_[19], {1, 0, 0});
  want.resize(3000);
  EXPECT_EQ(page, want);
  EXPECT_EQ(Find(/*lease=*/false).hit.tokens, 20 * kBlockTokens);
}

TEST_F(GroupPlan, EndsWhereABreakpointLeads) {
  Begin();
  FillGroup(0, 30);
  for (const uint32_t at : {3, 20, 25}) FillTail(at);
  GroupPlanSpec spec;
  spec.boundaries = {uint64_t{1} << 2 | uint64_t{1} << 19 | uint64_t{1} << 28};
  EXPECT_EQ(Find(true, {}, spec).hit.tokens, 20 * kBlockTokens) << "not at 25, where no mark leads";
  spec.boundaries = {uint64_t{1} << 28};
  const GroupPlanOutcome none = Find(true, {}, spec);
  EXPECT_EQ(none.hit.tokens, 0u);
  EXPECT_EQ(none.tail, 0u);
}

TEST_F(GroupPlan, F51_ATailThatWentAwayGivesTheNextBestBoundary) {
  Begin();
  FillGroup(0, 30);
  FillTail(3);
  FillTail(20, /*whole=*/false);
  FillTail(25, /*whole=*/false);
  const GroupPlanOutcome hit = Find();
  EXPECT_EQ(hit.hit.tokens, 3 * kBlockTokens);
  EXPECT_NE(hit.tail, 0u);
}

TEST_F(GroupPlan, WithoutAnyTailNothingIsLeased) {
  Begin();
  FillGroup(0, 30);
  for (uint32_t at = 5; at < 5 + 2 * kTailTriesMax; ++at) FillTail(at, /*whole=*/false);
  const GroupPlanOutcome hit = Find();
  EXPECT_EQ(hit.hit.tokens, 0u);
  EXPECT_EQ(hit.tail, 0u);
  EXPECT_EQ(hit.why, MissReason::kNeverSeen) << "what the node said of the last one";
  EXPECT_EQ(LivePlans(), 0u);
}

TEST_F(GroupPlan, ADraftLayerMustReachOneBlockFurther) {
  Begin(/*draft=*/true);
  FillGroup(0, 30);
  FillGroup(2, 20);
  for (const uint32_t at : {18, 19, 20}) FillTail(at);
  const GroupPlanOutcome hit = Find();
  EXPECT_EQ(hit.hit.tokens, 19 * kBlockTokens);
  ASSERT_THAT(hit.history, SizeIs(2));
  EXPECT_NE(hit.history[1], 0u);
}

TEST_F(GroupPlan, F61_NodesOfAnEarlierReleaseAreACleanMissAndGetNoNotes) {
  for (auto& node : nodes_) node->tells_detail = false;
  Begin();
  FillGroup(0, 30);
  FillTail(20);
  EXPECT_EQ(Find().hit.tokens, 0u);
  core_->Supersede({.layout = {}, .blocks = keys_, .keep = {}}, 3, 7);
  Settle();
  for (const auto& node : nodes_) EXPECT_THAT(node->notes, IsEmpty());
}

constexpr BlockHash kRequest{.bytes = {1, 2, 3}};

TEST_F(GroupPlan, F50_ARankTakesTheLengthThatAnEarlierOneProposed) {
  Begin();
  FillGroup(0, 30);
  for (const uint32_t at : {3, 20}) FillTail(at);
  OwnerOf(keys_, 0).decisions[kRequest] = {.tokens = 3 * kBlockTokens, .asked = 1};
  const GroupPlanOutcome hit = Find(true, kRequest);
  EXPECT_EQ(hit.hit.tokens, 3 * kBlockTokens);
  EXPECT_EQ(hit.asked, 2u);
  EXPECT_FALSE(hit.lost);
  EXPECT_NE(hit.tail, 0u);
  EXPECT_NE(hit.history.at(0), 0u);
  core_->Release(hit.tail);
  core_->Release(hit.history[0]);
  EXPECT_EQ(LivePlans(), 0u) << "what it had found by itself is let go";
}

TEST_F(GroupPlan, F50_AMissThatWasAgreedOnIsEverybodysMiss) {
  Begin();
  FillGroup(0, 30);
  FillTail(20);
  OwnerOf(keys_, 0).decisions[kRequest] = {.tokens = 0, .asked = 1};
  EXPECT_EQ(Find(true, kRequest).hit.tokens, 0u);
  EXPECT_EQ(LivePlans(), 0u);
}

TEST_F(GroupPlan, F50_TheLengthHoldsEvenWhereItsPartsAreGone) {
  Begin();
  FillGroup(0, 30);
  FillTail(3);
  OwnerOf(keys_, 0).decisions[kRequest] = {.tokens = 20 * kBlockTokens, .asked = 1};
  const GroupPlanOutcome hit = Find(true, kRequest);
  EXPECT_EQ(hit.hit.tokens, 20 * kBlockTokens);
  EXPECT_TRUE(hit.lost);
  EXPECT_EQ(hit.tail, 0u);
  EXPECT_EQ(LivePlans(), 0u);
}

TEST_F(GroupPlan, F50_WhoeverIsDoneBeforeAllHaveAskedLeavesItsLeases) {
  Begin();
  FillGroup(0, 30);
  FillTail(20);
  GroupPlanOutcome hit = Find(true, kRequest);
  EXPECT_EQ(hit.asked, 1u);
  const size_t leased = LivePlans();
  ASSERT_GT(leased, 0u);
  ReleaseGroups(*core_, hit, keys_[0].hash, kRequest, 2);
  Settle();
  EXPECT_EQ(LivePlans(), leased) << "the other rank's hit may rest on them";
  hit = Find(true, kRequest);
  EXPECT_EQ(hit.asked, 2u);
  ReleaseGroups(*core_, hit, keys_[0].hash, kRequest, 2);
  clock_.Set(clock_.Now() + kSecond);
  Settle();
  EXPECT_EQ(LivePlans(), leased) << "released at once; those of the first end by themselves";
}

TEST_F(GroupPlan, F50_AHitIsCheckedAgainBeforeItIsUsed) {
  Begin();
  FillGroup(0, 30);
  FillTail(20);
  const GroupPlanOutcome hit = Find();
  const auto recheck = [&](PlanHandle plan) {
    std::optional<PartResult> result;
    bool done = false;
    core_->Recheck(plan, 0, [&](PartResult r) {
      result = r;
      done = true;
    });
    EXPECT_TRUE(RunUntil(done));
    return result;
  };
  EXPECT_EQ(recheck(hit.tail), PartResult::kOk);
  EXPECT_EQ(recheck(hit.history[0]), PartResult::kOk);
  for (auto& node : nodes_) node->plans.clear();
  EXPECT_EQ(recheck(hit.tail), PartResult::kLeaseExpired);
  core_->Release(hit.tail);
  EXPECT_EQ(recheck(hit.tail), PartResult::kLeaseExpired) << "released";
  clock_.Set(clock_.Now() + 3 * kSecond);
  EXPECT_EQ(recheck(hit.history[0]), PartResult::kLeaseExpired) << "its time is over";
}

TEST_F(GroupPlan, OwnersHearOfNewerTailsAndOfWhatCannotBeReached) {
  Begin();
  FillGroup(0, 30);
  FakeNode& gap = OwnerOf(keys_, 10);
  gap.parts.erase({keys_[10].hash, PartCoord{}.Packed()});
  FillTail(4);
  EXPECT_EQ(Find().hit.tokens, 4 * kBlockTokens);
  core_->Supersede({.layout = {}, .blocks = keys_, .keep = {}}, 3, 7);
  Settle();
  FakeNode& other = &gap == nodes_[0].get() ? *nodes_[1] : *nodes_[0];
  size_t stranded = 0, superseded = 0;
  for (const NoteRequest& note : other.notes) stranded += note.stranded.size();
  EXPECT_EQ(stranded, 1u) << "the other node has blocks behind the gap";
  for (const auto& node : nodes_) {
    for (const NoteRequest& note : node->notes) superseded += note.superseded.size();
  }
  EXPECT_EQ(superseded, 1u);
  EXPECT_EQ(OwnerOf(keys_, 3).notes.back().superseded.at(0).block, keys_[3].hash);
}

// Its status is all that anybody takes of it: what the history holds is let go.
TEST_F(GroupPlan, OneWhoseTailIsRefusedKeepsNoLease) {
  AddNode("silent");
  nodes_.back()->silent = true;
  map_.nodes.back().state = NodeState::kDraining;
  Begin();
  FillGroup(0, 30);
  FillTail(20);
  for (size_t i = 0; i + 1 < kOperationsMax; ++i)  // One is left, and that has the history.
    core_->FetchNodeStats("silent", 0, kLeaseTtlMax, nullptr);
  const GroupPlanOutcome hit = Find();
  EXPECT_EQ(hit.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(hit.hit.tokens, 0u);
  EXPECT_EQ(Counter("client_plans_held"), 0u);
  EXPECT_EQ(LivePlans(), 0u);
}

}  // namespace
}  // namespace cistern
