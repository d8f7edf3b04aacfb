#include "core/calc/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/testing/samples.h"

namespace cistern::calc {
namespace {

using layout::SampleDense;
using layout::SampleHybrid;
using ::testing::HasSubstr;

TEST(CalcMemory, CountsADenseModel) {
  const auto use = ComputeMemory(SampleDense(), {.tokens = 1000, .batch = 3});
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_EQ(use->bytes_per_token, 4 * 8 * 256);
  EXPECT_EQ(use->bytes, 3u * 1000 * 4 * 8 * 256);
  EXPECT_EQ(use->history_bytes, use->bytes);
  EXPECT_EQ(use->rank_bytes, use->bytes);
  EXPECT_EQ(use->working_bytes, 0u);
  EXPECT_EQ(use->plain_gqa_bytes, 3u * 1000 * 4 * 4096);
}

TEST(CalcMemory, GroupsAddUpAndFamiliesCountTheirOwnWay) {
  const auto use = ComputeMemory(SampleHybrid(), {.tokens = 100, .batch = 2});
  ASSERT_TRUE(use.ok()) << use.status();
  ASSERT_EQ(use->groups.size(), 3u);  // Scratch is no memory of the sequence.
  EXPECT_EQ(use->groups[0].bytes, 2u * (100 * 2 * 64 + 25 * 132));
  EXPECT_EQ(use->groups[1].bytes, 2u * 5 * 64);
  EXPECT_EQ(use->groups[2].bytes, 2u * (4 * 64 * 4 + 2 * 48));
  EXPECT_EQ(use->bytes, use->groups[0].bytes + use->groups[1].bytes + use->groups[2].bytes);
  EXPECT_EQ(use->history_bytes, use->groups[0].bytes);
}

TEST(CalcMemory, WorkingRowsStandApart) {
  layout::Layout layout = SampleHybrid();
  layout.groups[1].working = true;
  const auto use = ComputeMemory(layout, {.tokens = 100});
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_EQ(use->groups.size(), 2u);
  ASSERT_EQ(use->working.size(), 1u);
  EXPECT_EQ(use->working_bytes, 5u * 64);
  EXPECT_EQ(use->rank_bytes, use->bytes + use->working_bytes);
}

TEST(CalcMemory, RanksTakeHeadsAndShareThemWhenThereAreMoreRanks) {
  const auto rank = [](uint32_t tp) {
    return ComputeMemory(SampleDense(), {.tokens = 10, .tp = tp})->rank_bytes;
  };
  const uint64_t all = rank(1);
  EXPECT_EQ(rank(2), all / 2);
  EXPECT_EQ(rank(8), all / 8);
  EXPECT_EQ(rank(16), all / 8);
  const auto wrong = ComputeMemory(SampleDense(), {.tokens = 10, .tp = 3});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong.status().message(),
              HasSubstr("tp is 3, which neither divides nor is divided by the 8 heads"));
  // Rows without heads to cut lie on every rank.
  layout::Layout mla = SampleHybrid();
  mla.groups = {mla.groups[0]};
  mla.groups[0].segments = {mla.groups[0].segments[1]};
  EXPECT_EQ(ComputeMemory(mla, {.tokens = 16, .tp = 8})->rank_bytes, 4u * 132);
}

TEST(CalcMemory, RefusesNumbersOutsideOfTheLimits) {
  const auto refused = [](const MemoryQuery& query, const char* words) {
    const auto use = ComputeMemory(SampleDense(), query);
    EXPECT_EQ(use.status().code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(use.status().message(), HasSubstr(words));
  };
  refused({.tokens = 0}, "context is 0");
  refused({.tokens = kMemoryTokensMax + 1}, "context is");
  refused({.tokens = 1, .batch = 0}, "batch is 0");
  refused({.tokens = 1, .tp = 0}, "tp is 0");
  layout::Layout wide = SampleDense();
  for (layout::Plane& plane : wide.groups[0].segments[0].planes) plane.elements = 65536;
  const auto many = ComputeMemory(wide, {.tokens = kMemoryTokensMax, .batch = kMemoryBatchMax});
  EXPECT_THAT(many.status().message(), HasSubstr("more than 64 bits count"));
}

TEST(CalcMemory, SequencesThatFitBesideWeights) {
  const uint64_t token = 4 * 8 * 256;
  const MemoryQuery query{.tokens = 100, .tp = 2};
  const auto fit =
      ComputeFit(SampleDense(), query,
                 {.hbm_bytes = 1000 * token, .weights_bytes = 1001 * token, .reserve_bytes = token});
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_TRUE(fit->weights_fit);
  EXPECT_EQ(fit->sequence_bytes, 100 * token / 2);
  EXPECT_EQ(fit->free_bytes, 1000 * token - token - (1001 * token + 1) / 2);
  EXPECT_EQ(fit->sequences, fit->free_bytes / fit->sequence_bytes);
  EXPECT_EQ(fit->longest_tokens, fit->free_bytes / (token / 2));
  const auto none = ComputeFit(SampleDense(), query, {.hbm_bytes = 10, .weights_bytes = 21});
  EXPECT_FALSE(none->weights_fit);
  EXPECT_EQ(none->sequences, 0u);
  EXPECT_FALSE(ComputeFit(SampleDense(), query, {.hbm_bytes = 10, .reserve_bytes = 11})->weights_fit);
}

}  // namespace
}  // namespace cistern::calc
