#include <gmock/gmock.h>

#include <random>
#include <set>

#include "client/core/testing/client_fixture.h"

namespace cistern {
namespace {

// Over a path with one-sided reads and over one without.
class ClientFailedPages : public ClientFixture, public ::testing::WithParamInterface<bool> {
 protected:
  void AddNodes(int count) {
    for (int i = 1; i <= count; ++i) {
      AddNode("node-" + std::to_string(i));
      nodes_.back()->one_sided = GetParam();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, ClientFailedPages, ::testing::Bool(),
                         [](const auto& path) { return path.param ? "OneSided" : "Inline"; });

// Pages whose slots were given to others between lookup and load: the result names exactly those, whatever
// the set, and all others are right, so what lies before the first of them can be used.
TEST_P(ClientFailedPages, F51_ALoadNamesExactlyThePagesThatFailed) {
  AddNodes(3);
  Start();
  const auto keys = MakeKeys(24);
  Fill(keys, 24);
  const uint32_t seed = 51;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    std::set<uint64_t> gone;
    for (uint32_t i = random() % 6; i > 0; --i) gone.insert(keys[random() % keys.size()].fingerprint);
    for (const auto& node : nodes_) {
      node->edit_plan = nullptr;
      node->edit_pull = nullptr;
      if (GetParam()) {
        node->edit_pull = [gone](PullResult& r, std::vector<std::byte>&) {
          if (gone.contains(r.trailer.fingerprint)) r.trailer.generation += 2;
        };
      } else {
        node->edit_plan = [gone](PlanReply& reply) {
          for (PartDescriptor& d : reply.parts) d.generation |= gone.contains(d.block.fingerprint) ? 1 : 0;
        };
      }
    }
    const PlanOutcome plan = Plan(keys);
    ASSERT_EQ(plan.blocks, 24u);
    Pages pages = MakePages(24);
    const LoadResult result = Load(plan.plan, 0, pages);
    ASSERT_EQ(result.pages.size(), 24u);
    for (uint32_t i = 0; i < 24; ++i) {
      const bool fails = gone.contains(keys[i].fingerprint);
      EXPECT_EQ(result.pages[i], fails ? PartResult::kStale : PartResult::kOk) << i;
      if (!fails) {
        EXPECT_TRUE(Right(pages, i, keys[i])) << i;
      }
    }
    EXPECT_TRUE(CanariesWhole(pages));
    core_->Release(plan.plan);
  }
}

}  // namespace
}  // namespace cistern
