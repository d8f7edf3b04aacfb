#include "core/layout/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/layout/testing/samples.h"

namespace cistern::layout {
namespace {

TEST(LayoutEncoding, F03_IdIsFixedForever) {
  // Made by core/testdata/layout_id.py, which knows the encoding on its own; a change here makes every stored
  // block unreachable.
  EXPECT_EQ(ToHex(ComputeId(SampleDense())), "7a07ffef8d057075f56cce817d722622");
  EXPECT_EQ(ToHex(ComputeId(SampleHybrid())), "f7f12e762f8570786ce5a192487f7173");
}

TEST(LayoutEncoding, NamesForPeopleAreNotPartOfTheId) {
  Layout layout = SampleHybrid();
  const LayoutId id = ComputeId(layout);
  layout.model = std::string("other");
  layout.rows = std::string("fp8");
  layout.served = true;
  layout.groups[1].working = true;
  EXPECT_EQ(ComputeId(layout), id);
}

TEST(LayoutEncoding, F05_F52_EveryOtherFieldChangesTheId) {
  using Change = std::function<void(Layout&)>;
  const auto plane = [](Layout& l) -> Plane& { return l.groups[0].segments[1].planes[0]; };
  const auto segment = [](Layout& l) -> Segment& { return l.groups[0].segments[1]; };
  const auto group = [](Layout& l) -> Group& { return l.groups[1]; };
  const std::vector<Change> changes = {
      [](Layout& l) { l.unit_tokens = 8; },
      [](Layout& l) { l.block_tokens = 32; },
      [](Layout& l) { l.align_tokens = 32; },
      [](Layout& l) { l.replay_tokens = 1; },
      [](Layout& l) { l.stripe_layers = 1; },
      [](Layout& l) { l.cacheless_layers = {4}; },
      [](Layout& l) { l.groups.pop_back(); },
      [](Layout& l) { std::swap(l.groups[0], l.groups[1]); },
      [&](Layout& l) { group(l).name += "x"; },
      [&](Layout& l) { group(l).family = Family::kScratch; },
      [&](Layout& l) { group(l).window_tokens = 6; },
      [&](Layout& l) { group(l).required = false; },
      [&](Layout& l) { group(l).lookahead_tokens = 1; },
      [&](Layout& l) { group(l).slices = 1; },
      [&](Layout& l) { group(l).replicated = true; },
      [&](Layout& l) { group(l).span_ends = {1}; },
      [&](Layout& l) { segment(l).name += "x"; },
      [&](Layout& l) {
        segment(l).layers = {1, 3};
      },
      [&](Layout& l) { segment(l).tokens_per_row = 1; },
      [&](Layout& l) { segment(l).row_tile = 1; },
      [&](Layout& l) { segment(l).planes.pop_back(); },
      [&](Layout& l) { std::swap(segment(l).planes[0], segment(l).planes[1]); },
      [&](Layout& l) { plane(l).name += "x"; },
      [&](Layout& l) { plane(l).dtype = std::string("e5m2"); },
      [&](Layout& l) { plane(l).heads = 2; },
      [&](Layout& l) { plane(l).elements = 64; },
      [&](Layout& l) { plane(l).shard = Shard::kHead; },
      [&](Layout& l) { plane(l).order = Order::kColumn; },
      [&](Layout& l) { plane(l).order_name = std::string("x"); },
      [&](Layout& l) { plane(l).scale_rule += "x"; },
      [&](Layout& l) { plane(l).scale_group = 64; },
      [&](Layout& l) { plane(l).pad_bytes = 1; },
      [&](Layout& l) { plane(l).joined = true; },
  };
  std::set<LayoutId> ids = {ComputeId(SampleHybrid())};
  for (const Change& change : changes) {
    Layout layout = SampleHybrid();
    change(layout);
    EXPECT_TRUE(ids.insert(ComputeId(layout)).second)
        << "change " << ids.size() << " gives an id seen before";
  }
}

TEST(LayoutEncoding, F02_ABorderBetweenFieldsChangesTheId) {
  Layout a = SampleHybrid(), b = SampleHybrid();
  a.groups[0].segments[1].planes[0].order_name = std::string("ab"),
  a.groups[0].segments[1].planes[0].scale_rule = std::string("c");
  b.groups[0].segments[1].planes[0].order_name = std::string("a"),
  b.groups[0].segments[1].planes[0].scale_rule = std::string("bc");
  EXPECT_NE(ComputeId(a), ComputeId(b));
  // A segment moved into the neighbour group.
  Layout c = SampleHybrid();
  c.groups[1].segments.insert(c.groups[1].segments.begin(), c.groups[0].segments.back());
  c.groups[0].segments.pop_back();
  EXPECT_NE(ComputeId(c), ComputeId(SampleHybrid()));
}

}  // namespace
}  // namespace cistern::layout
