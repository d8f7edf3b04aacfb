#include "core/calc/trace_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <string>

#include "core/calc/capacity_plan.h"
#include "core/eviction/replay.h"
#include "core/testing/traces.h"

namespace cistern {
namespace {

TraceRequest Request(int64_t ms, std::vector<uint64_t> ids) {
  TraceRequest request;
  request.timestamp_ms = ms;
  request.input_tokens = static_cast<uint32_t>(ids.size()) * 512;
  request.hash_ids = std::move(ids);
  return request;
}

TEST(StackDistance, AgreesWithAListInAnyOrderOfTouches) {
  const uint32_t seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const uint32_t entries : {1u, 2u, 50u, 700u}) {
    StackDistance stack;
    stack.Grow(entries);
    std::list<uint32_t> list;
    for (int i = 0; i < 6000; ++i) {  // Far more touches than times: renumbered many times.
      const uint32_t entry = std::min(random() % entries, random() % entries);
      uint32_t position = 1;
      auto at = list.begin();
      for (; at != list.end() && *at != entry; ++at) ++position;
      ASSERT_EQ(stack.Distance(entry), at == list.end() ? 0 : position) << "touch " << i;
      if (at != list.end()) list.erase(at);
      list.push_front(entry);
      stack.Touch(entry);
    }
  }
}

TEST(GapHistogram, IsExactBelow256MsAndCloseAbove) {
  GapHistogram gaps;
  EXPECT_EQ(gaps.Percentile(0.5), 0u);
  for (uint64_t ms = 0; ms < 200; ++ms) gaps.Add(ms);
  EXPECT_EQ(gaps.Percentile(0.5), 99u);
  EXPECT_EQ(gaps.Percentile(1), 199u);
  for (const uint64_t ms :
       {uint64_t{256}, uint64_t{1000}, uint64_t{86'400'000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    GapHistogram one;
    one.Add(ms);
    EXPECT_GE(one.Percentile(1), ms);
    EXPECT_LE(static_cast<double>(one.Percentile(1)), 1.008 * static_cast<double>(ms));
  }
}

// Worked out by hand: five requests over six blocks.
TEST(TraceProfile, CountsASmallLog) {
  TraceProfile profile;
  ASSERT_TRUE(profile.Add(Request(0, {1, 2, 3})).ok());
  ASSERT_TRUE(profile.Add(Request(30'000, {1, 2, 4})).ok());     // 1 and 2, 30 s later: distances 1, 2.
  ASSERT_TRUE(profile.Add(Request(1'000'000, {1, 5})).ok());     // 1: distance 1, 970 s.
  ASSERT_TRUE(profile.Add(Request(1'000'000, {9})).ok());        // Nothing.
  ASSERT_TRUE(profile.Add(Request(1'001'000, {1, 2, 3})).ok());  // Stack 9 1 5 2 4 3: distances 2, 4, 6.
  EXPECT_EQ(profile.requests(), 5u);
  EXPECT_EQ(profile.references(), 12u);
  EXPECT_EQ(profile.unique_blocks(), 6u);
  EXPECT_DOUBLE_EQ(profile.IdealHitRatio(), 6.0 / 12);
  EXPECT_EQ(profile.requests_with_hit(), 3u);
  EXPECT_EQ(profile.requests_all_hit(), 1u);
  EXPECT_EQ(profile.hit_tokens(), 6u * 512);
  EXPECT_DOUBLE_EQ(profile.HitRatio(0), 0);
  EXPECT_DOUBLE_EQ(profile.HitRatio(1), 2.0 / 12);
  EXPECT_DOUBLE_EQ(profile.HitRatio(2), 4.0 / 12);
  EXPECT_DOUBLE_EQ(profile.HitRatio(4), 5.0 / 12);
  EXPECT_DOUBLE_EQ(profile.HitRatio(6), 6.0 / 12);
  EXPECT_DOUBLE_EQ(profile.HitRatio(1'000'000), 6.0 / 12);
  EXPECT_EQ(profile.BlocksForShare(1), 6u);
  EXPECT_EQ(profile.BlocksForShare(0.5), 2u);
  // 30, 30, 970 s; then 1 s for block 1, 971 s for block 2, 1001 s for block 3.
  EXPECT_DOUBLE_EQ(profile.TtlHitRatio(0), 3.0 / 12);
  EXPECT_DOUBLE_EQ(profile.TtlHitRatio(3), 6.0 / 12);
  EXPECT_EQ(profile.BlocksUsedOnce(), 3u);  // 4, 5, 9.
  const auto temperatures = profile.Temperatures();
  EXPECT_EQ(temperatures[static_cast<size_t>(Temperature::kHot)].blocks, 0u);
  EXPECT_EQ(temperatures[static_cast<size_t>(Temperature::kWarm)].blocks, 2u);  // 1: 334 s, 2: 500 s.
  EXPECT_EQ(temperatures[static_cast<size_t>(Temperature::kWarm)].reuses, 5u);
  EXPECT_EQ(temperatures[static_cast<size_t>(Temperature::kCold)].blocks, 1u);
  EXPECT_EQ(temperatures[static_cast<size_t>(Temperature::kOnce)].blocks, 3u);
  EXPECT_DOUBLE_EQ(profile.HottestShare(0.2), 4.0 / 12);
  EXPECT_EQ(profile.out_of_order(), 0u);
  EXPECT_DOUBLE_EQ(profile.span_s(), 1001);
}

TEST(TraceProfile, AHitEndsAtTheFirstBlockThatWasNeverSeen) {
  TraceProfile profile;
  ASSERT_TRUE(profile.Add(Request(0, {1, 2, 3})).ok());
  ASSERT_TRUE(profile.Add(Request(5, {1, 8, 3})).ok());  // No sound log: 3 behind another parent.
  EXPECT_DOUBLE_EQ(profile.IdealHitRatio(), 1.0 / 6);
  ASSERT_TRUE(profile.Add(Request(1, {1})).ok());
  EXPECT_EQ(profile.out_of_order(), 1u);
}

TEST(TraceProfile, AnEmptyLogIsAllZero) {
  const TraceProfile profile;
  EXPECT_EQ(profile.IdealHitRatio(), 0);
  EXPECT_EQ(profile.HitRatio(10), 0);
  EXPECT_EQ(profile.BlocksForShare(0.9), 0u);
  EXPECT_EQ(profile.HottestShare(0.01), 0);
  EXPECT_EQ(profile.span_s(), 0);
}

// The whole curve against the simulator that nodes' policies are judged with, on a random sound log.
TEST(TraceProfile, HasTheHitsOfASimulatedLruAtEverySize) {
  const uint32_t seed = 41;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  TraceIds requests;
  std::vector<std::vector<uint32_t>> chains;
  uint32_t next = 0;
  TraceProfile profile;
  for (int i = 0; i < 400; ++i) {
    std::vector<uint32_t> chain;
    if (!chains.empty() && random() % 3 != 0) {
      chain = chains[chains.size() - 1 - random() % std::min<size_t>(chains.size(), 30)];
      chain.resize(1 + random() % chain.size());
    }
    for (uint32_t more = random() % 6 + (chain.empty() ? 1 : 0); more > 0; --more) chain.push_back(next++);
    chains.push_back(chain);
    requests.push_back(chain);
    ASSERT_TRUE(profile.Add(Request(i * 1000, {chain.begin(), chain.end()})).ok());
  }
  const ReplayTrace trace = MakeReplayTrace(requests);
  for (const uint32_t size : {1u, 2u, 5u, 13u, 40u, 111u, 300u, next}) {
    const auto score = ReplayPolicy("lru", trace, size);
    ASSERT_TRUE(score.ok());
    EXPECT_DOUBLE_EQ(profile.HitRatio(size), score->HitRatio()) << size << " blocks";
  }
}

TEST(CapacityPlan, TurnsBlocksIntoMoney) {
  TraceProfile profile;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(profile.Add(Request(i * 100'000, {1, 2})).ok());  // 18 of 20 hit.
  const CapacityPrices prices{.bytes_per_token = 1e6,
                              .usd_per_prefill_token = 1e-6,
                              .ram_usd_per_gb_month = 2,
                              .nvme_usd_per_gb_month = 0.1};
  const CapacityPlan plan(profile, prices);
  EXPECT_DOUBLE_EQ(plan.BlockBytes(), 512e6);
  const CapacityRow both = plan.OfBlocks(2);
  EXPECT_DOUBLE_EQ(both.hit_ratio, 0.9);
  EXPECT_DOUBLE_EQ(both.ram_usd_month, 1.024 * 2);
  EXPECT_DOUBLE_EQ(both.nvme_usd_month, 1.024 * 0.1);
  EXPECT_NEAR(both.saved_usd_month, 18 * 512 * 1e-6 / 900 * 30.4375 * 86400, 1e-9);
  const TieredPlan tiers = plan.OfTiers(600'000'000, 5'000'000'000);
  EXPECT_EQ(tiers.ram.blocks, 1u);
  EXPECT_DOUBLE_EQ(tiers.ram.hit_ratio, 0.45);
  EXPECT_EQ(tiers.all.blocks, 2u);  // No more than there are.
  EXPECT_DOUBLE_EQ(tiers.all.hit_ratio, 0.9);
  EXPECT_DOUBLE_EQ(tiers.usd_month, 0.6 * 2 + 5 * 0.1);
  // A token's megabyte costs 2e-3 USD a month in RAM and 1e-6 to compute: it pays for 1/2000 of a month.
  EXPECT_NEAR(plan.BreakEvenStaySeconds(2), 30.4375 * 86400 / 2000, 1e-6);
}

// EVICTION.md: what the public traces say, in the digits printed there.
struct PublicTrace {
  const char* file;
  uint64_t requests, references, unique;
  double ideal, ideal_tokens, with_hit, all_hit, used_once, hottest;
  double gaps_s[3];  // p50, p90, p99
  double ttl[5];     // 1, 5, 10, 30, 60 min
  double lru[6];     // at 1, 2, 5, 10, 20, 50 % of the unique blocks
};
const PublicTrace kPublic[] = {
    {kConversationTrace,
     12031,
     288500,
     182790,
     .3664,
     .3736,
     1.000,
     .010,
     .759,
     .122,
     {114, 519, 1578},
     {.103, .288, .343, .364, .366},
     {.0525, .0793, .1958, .2789, .3453, .3631}},
    {kSyntheticTrace,
     3993,
     121877,
     43924,
     .6396,
     .6512,
     .446,
     .053,
     .585,
     .068,
     {59, 282, 583},
     {.322, .584, .634, .640, .640},
     {.0381, .0778, .1566, .2623, .3931, .5888}},
    {kAgenticTrace,
     24663,
     6057870,
     218709,
     .9639,
     .9619,
     .990,
     .165,
     .065,
     .090,
     {20, 125, 1896},
     {.792, .917, .937, .954, .960},
     {.3802, .6964, .9209, .9546, .9625, .9638}},
};

class PublicTraces : public ::testing::TestWithParam<PublicTrace> {};
INSTANTIATE_TEST_SUITE_P(All, PublicTraces, ::testing::ValuesIn(kPublic),
                         [](const auto& one) { return "Trace" + std::to_string(one.index); });

TEST_P(PublicTraces, HaveTheKnownFigures) {
  const PublicTrace& known = GetParam();
  const std::string path = TraceFile(known.file);
  if (path.empty()) GTEST_SKIP() << known.file << " is absent";
  auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  TraceProfile profile;
  const auto broken = [](uint64_t line, std::string_view why) { ADD_FAILURE() << line << ": " << why; };
  for (TraceRequest request; (*reader)->Next(request, broken);) ASSERT_TRUE(profile.Add(request).ok());
  ASSERT_TRUE((*reader)->status().ok());
  const auto share = [](uint64_t part, uint64_t of) {
    return static_cast<double>(part) / static_cast<double>(of);
  };
  EXPECT_EQ(profile.requests(), known.requests);
  EXPECT_EQ(profile.references(), known.references);
  EXPECT_EQ(profile.unique_blocks(), known.unique);
  EXPECT_NEAR(profile.IdealHitRatio(), known.ideal, .00005);
  EXPECT_NEAR(share(profile.hit_tokens(), profile.input_tokens()), known.ideal_tokens, .0001);
  EXPECT_NEAR(share(profile.requests_with_hit(), known.requests), known.with_hit, .0006);
  EXPECT_NEAR(share(profile.requests_all_hit(), known.requests), known.all_hit, .0006);
  EXPECT_NEAR(share(profile.BlocksUsedOnce(), known.unique), known.used_once, .0006);
  EXPECT_NEAR(profile.HottestShare(0.01), known.hottest, .0006);
  const double shares[] = {.5, .9, .99};
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(profile.GapPercentileSeconds(shares[i]), known.gaps_s[i], .012 * known.gaps_s[i] + .5);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(profile.TtlHitRatio(i), known.ttl[i], .0006) << "ttl " << i;
  const double sizes[] = {.01, .02, .05, .1, .2, .5};
  for (int i = 0; i < 6; ++i) {
    const auto blocks = static_cast<uint64_t>(sizes[i] * static_cast<double>(known.unique));
    EXPECT_NEAR(profile.HitRatio(blocks), known.lru[i], .00015) << blocks << " blocks";
  }
}

}  // namespace
}  // namespace cistern
