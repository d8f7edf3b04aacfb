#include "core/layout/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/encoding.h"
#include "core/layout/testing/samples.h"

namespace cistern::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LayoutFields, IdsAreWrittenInRuns) {
  EXPECT_EQ(FormatIds({}), "");
  EXPECT_EQ(FormatIds({5}), "5");
  EXPECT_EQ(FormatIds({0, 1, 2, 6, 8, 9}), "0-2,6,8,9");
}

TEST(LayoutFields, EqualLayoutsDoNotDiffer) { EXPECT_THAT(Diff(SampleHybrid(), SampleHybrid()), IsEmpty()); }

TEST(LayoutFields, DiffNamesWhatChangedWentAndCame) {
  Layout after = SampleHybrid();
  after.model = std::string("renamed");
  after.groups[0].segments[1].planes[0].scale_rule = std::string("mxfp4");
  after.groups[0].segments[1].planes.pop_back();
  const std::vector<FieldChange> changes = Diff(SampleHybrid(), after);
  ASSERT_EQ(changes.size(), 12u);
  EXPECT_EQ(changes[0], (FieldChange{"model", "hybrid", "renamed", false}));
  EXPECT_EQ(changes[1],
            (FieldChange{"groups[0].segments[1].planes[0].scale_rule", "fp32_128", "mxfp4", true}));
  EXPECT_EQ(changes[2].path, "groups[0].segments[1].planes[1].name");
  EXPECT_EQ(changes[2].after, "");
  EXPECT_EQ(Diff(after, SampleHybrid()).back().before, "");
}

TEST(LayoutFields, WhatIsMarkedAsOutsideOfTheIdIsOutsideOfIt) {
  Layout after = SampleHybrid();
  after.rows = std::string("fp8");
  after.groups[1].working = true;
  for (const FieldChange& change : Diff(SampleHybrid(), after)) EXPECT_FALSE(change.in_id) << change.path;
  EXPECT_EQ(ComputeId(after), ComputeId(SampleHybrid()));
}

}  // namespace
}  // namespace cistern::layout
