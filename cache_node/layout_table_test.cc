#include "cache_node/layout_table.h"

#include <gtest/gtest.h>

namespace cistern {
namespace {

LayoutId Named(uint32_t n) {
  LayoutId id;
  StoreLe<uint32_t>(id.bytes.data(), n);
  return id;
}

TEST(LayoutTable, FindsOnlyLayoutsOfPartsThatAreHere) {
  LayoutTable layouts;
  EXPECT_EQ(layouts.Find(Named(1)), kNoLayout);
  const LayoutIndex one = layouts.Hold(Named(1));
  EXPECT_EQ(layouts.Hold(Named(1)), one);
  EXPECT_NE(layouts.Hold(Named(2)), one);
  layouts.Release(one);
  EXPECT_EQ(layouts.Find(Named(1)), one);
  layouts.Release(one);
  EXPECT_EQ(layouts.Find(Named(1)), kNoLayout);
}

TEST(LayoutTable, IsBoundedAndGivesNumbersBack) {
  LayoutTable layouts;
  for (uint32_t i = 0; i < kLayoutsPerShardMax; ++i) ASSERT_NE(layouts.Hold(Named(i)), kNoLayout);
  EXPECT_EQ(layouts.Hold(Named(1 << 20)), kNoLayout);
  layouts.Release(layouts.Find(Named(17)));
  EXPECT_NE(layouts.Hold(Named(1 << 20)), kNoLayout);
}

}  // namespace
}  // namespace cistern
