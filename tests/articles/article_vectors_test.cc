// What two articles say of KV caches, with the values that are correct. Where an article is wrong its number
// stands beside ours, so that nobody puts it back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "core/calc/memory.h"
#include "core/layout/geometry.h"
#include "proto/layout_catalog.h"
#include "tests/articles/vectors.h"

namespace cistern {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr uint64_t kMillion = 1u << 20;

const Vector& Article(const std::string& id) { return FindVector("article_vectors", id); }

calc::MemoryUse Memory(const char* name, uint64_t tokens) {
  const absl::StatusOr<ShippedLayout> found = FindLayout(name);
  EXPECT_TRUE(found.ok()) << found.status();
  if (!found.ok()) return {};
  const absl::StatusOr<calc::MemoryUse> use = calc::ComputeMemory(found->layout, {.tokens = tokens});
  EXPECT_TRUE(use.ok()) << use.status();
  return use.ok() ? *use : calc::MemoryUse{};
}
double HistoryGib(const char* name, uint64_t tokens = kMillion) {
  return static_cast<double>(Memory(name, tokens).history_bytes) / kGib;
}

std::vector<double> Scaled(const std::vector<double>& scores, double dk) {
  std::vector<double> out;
  for (double score : scores) out.push_back(score / std::sqrt(dk));
  return out;
}
std::vector<double> Softmax(const std::vector<double>& scores) {
  std::vector<double> out;
  double sum = 0;
  for (double score : scores) sum += std::exp(score);
  for (double score : scores) out.push_back(std::exp(score) / sum);
  return out;
}
void ExpectNear(const std::vector<double>& got, const Vector& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i].get<double>(), tolerance) << i;
}

// K and V that generating `steps` tokens behind `prompt` computes. The prefill gives the first token already;
// without a cache each step computes all that is before it, with one it computes its own, and the last
// token's is never needed.
double KvWithoutCache(double prompt, double steps) { return steps * prompt + steps * (steps - 1) / 2; }
double KvWithCache(double prompt, double steps) { return prompt + steps - 1; }

TEST(ArticleVectors, ScoresAreDividedByTheRootOfTheHeadSize) {
  const Vector& v = Article("a004_scale");
  ExpectNear(Scaled(v["inputs"]["raw_scores"], v["inputs"]["dk"]), v["correct"], 1e-12);
}

TEST(ArticleVectors, SoftmaxOfTheScores) {
  ExpectNear(Softmax(Article("a004_softmax")["inputs"]["scaled_scores"]), Article("a004_softmax")["correct"],
             1e-6);
  const Vector& raw = Article("a004_softmax_unscaled");
  ExpectNear(Softmax(raw["inputs"]["scores"]), raw["correct"], 1e-6);
  const Vector& four = Article("a004_softmax_dk4");
  ExpectNear(Softmax(Scaled(four["inputs"]["scores"], four["inputs"]["dk"])), four["correct"], 1e-6);
  const Vector& causal = Article("a004_softmax_causal");
  ExpectNear(Softmax(causal["inputs"]["scaled_scores"]), causal["correct"], 1e-6);
  // The article's column is none of them: it gives 0.45 where 0.243 is true.
  EXPECT_GT(std::fabs(Article("a004_softmax")["article_says"][2].get<double>() - 0.243444), 0.2);
}

TEST(ArticleVectors, AHeatmapOfADecoderHasNothingAboveItsDiagonal) {
  const Vector& v = Article("a004_heatmap_rows");
  std::vector<std::string> tokens = {"The", "cat", "sat", "on", "mat"};
  bool causal = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<double> row = v["inputs"][tokens[i]];
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), v["correct"][tokens[i]].get<double>(), 1e-9);
    for (size_t j = i + 1; j < row.size(); ++j) causal = causal && row[j] == 0;
  }
  EXPECT_FALSE(causal);  // Its sums are right, its mask is not.
}

TEST(ArticleVectors, WhatTheArticlesContradictThemselvesInHasNoCorrectValue) {
  EXPECT_TRUE(Article("a004_weight_text")["correct"].is_null());
  EXPECT_TRUE(Article("a004_output")["correct"].is_null());
}

TEST(ArticleVectors, WorkWithAndWithoutACache) {
  const Vector& without = Article("a004_no_cache_1000_100");
  EXPECT_EQ(KvWithoutCache(1000, 100), without["correct"]["exact_recompute_each_step"]);
  EXPECT_EQ(100 * (1000 + 10), without["correct"]["seed_convention"]);
  const Vector& with = Article("a004_with_cache");
  EXPECT_EQ(KvWithCache(1000, 100), with["correct"]["kv_computed_needed"]);
  EXPECT_EQ(KvWithCache(1000, 100) + 1, with["correct"]["kv_computed_if_last_stored"]);
  EXPECT_NEAR(101000.0 / 1100, Article("a004_speedup")["correct"].get<double>(), 0.0005);
  EXPECT_EQ(101000.0 / 100, Article("a004_speedup_prefix")["correct"]);
}

TEST(ArticleVectors, FourTokensNeedEightPairsOfKAndV) {
  const Vector& v = Article("a004_decode_reads")["correct"];
  EXPECT_EQ(KvWithCache(5, 4), v["kv_to_generate_4"]);
  EXPECT_EQ(KvWithoutCache(5, 4), v["kv_without_cache"]);
  EXPECT_EQ(KvWithoutCache(5, 4) / KvWithCache(5, 4), v["ratio"]);
  EXPECT_EQ(5 + 6 + 7 + 8, v["cache_reads_seed_convention"]);
  EXPECT_NEAR(26.0 / 9, v["ratio_seed"].get<double>(), 0.0005);
  EXPECT_EQ(5 + 10 - 1, Article("a004_step10")["correct"]);
}

TEST(ArticleVectors, EntriesAndTensorsOfACache) {
  EXPECT_EQ(32 * 8 * 2, Article("a004_entries")["correct"]);
  EXPECT_EQ(32 * 2, Article("a004_layer_caches")["correct"]);
}

TEST(ArticleVectors, AChatsCacheKeepsWhatWasGeneratedToo) {
  const Vector& v = Article("a004_multiturn");
  const Vector& rows = v["correct"]["rows"];
  double cached = 0, prompt = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double asked = v["inputs"]["turns"][i][0], answered = v["inputs"]["turns"][i][1];
    EXPECT_EQ(cached, rows[i]["cached"]) << i;
    EXPECT_EQ(asked + answered, rows[i]["new"]) << i;
    prompt = cached + asked;
    EXPECT_NEAR(cached / prompt, rows[i]["prompt_cached_fraction"].get<double>(), 0.00005) << i;
    cached = prompt + answered;
  }
  EXPECT_EQ(cached, v["correct"]["final"]);
}

TEST(ArticleVectors, Llama70bKeeps8HeadsNot64) {
  const Vector& v = Article("a004_llama70b")["correct"];
  const calc::MemoryUse use = Memory("llama-3-70b", 8192);
  EXPECT_EQ(use.bytes, v["correct_bytes"]);
  EXPECT_EQ(static_cast<double>(use.bytes) / kGib, v["correct_GiB"]);
  EXPECT_EQ(use.bytes_per_token, v["per_token_bytes"].get<double>());
  EXPECT_EQ(use.bytes_per_token / 80, v["per_token_layer_bytes"].get<double>());
  const layout::Plane k = FindLayout("llama-3-70b")->layout.groups[0].segments[0].planes[0];
  EXPECT_EQ(k.heads, v["kv_heads"]);
  EXPECT_EQ(k.elements, v["head_dim"]);
  EXPECT_EQ(uint64_t{2} * 80 * 8192 * 8192 * 2, v["seed_formula_bytes"]);  // 20 GiB: what its formula gives.
}

TEST(ArticleVectors, WeightsOfLlama70bAloneAreMoreThanAnA100Has) {
  const Vector& v = Article("a004_a100")["correct"];
  const layout::Layout layout = FindLayout("llama-3-70b")->layout;
  const uint64_t hbm = 80000000000, weights = 141100000000;
  const auto fit = calc::ComputeFit(layout, {.tokens = 8192}, {.hbm_bytes = hbm, .weights_bytes = weights});
  EXPECT_EQ(fit->weights_fit, v["fits"].get<bool>());
  EXPECT_EQ(static_cast<double>(weights) / 1e9, v["weights_bf16_GB"]);
  EXPECT_EQ(calc::ComputeFit(layout, {.tokens = 8192}, {.hbm_bytes = hbm})->sequences,
            v["caches_of_2_5GiB_in_80GB"]);
}

TEST(ArticleVectors, SavingsOfAnAgentAreAQuarterNotForty) {
  const Vector& v = Article("a004_agent_savings");
  const double cached = v["inputs"]["cached"], full = v["inputs"]["full"],
               price = v["inputs"]["cached_price_ratio"];
  EXPECT_NEAR(cached * (1 - price) / (cached + full), v["correct"].get<double>(), 0.00005);
}

TEST(ArticleVectors, ADiscountOf90PercentIsOfTheLowerOfItsTwoPrices) {
  const Vector& v = Article("a004_price");
  const double hit = v["inputs"]["hit"], cached = v["inputs"]["cached"], miss = v["inputs"]["miss"];
  EXPECT_NEAR(1 - cached / hit, v["correct"]["hit_discount"].get<double>(), 1e-12);
  EXPECT_NEAR(miss / hit, v["correct"]["miss_vs_hit_base"].get<double>(), 1e-12);
}

TEST(ArticleVectors, TheYardstickOf655Gigabytes) {
  const Vector& v = Article("a000_655GB")["correct"];
  const calc::MemoryUse use = Memory("plain-40x4096", 1000000);
  EXPECT_EQ(use.bytes_per_token, v["bytes_per_token"].get<double>());
  EXPECT_EQ(static_cast<double>(use.bytes) / 1e9, v["GB"]);
  EXPECT_EQ(HistoryGib("plain-40x4096"), v["GiB_at_1048576"]);
}

TEST(ArticleVectors, DeepSeekV4ProInBf16) {
  const Vector& v = Article("a000_v4pro")["correct"];
  const layout::Layout layout = FindLayout("deepseek-v4-pro-bf16")->layout;
  const auto layer_mib = [&](size_t segment) {
    layout::Group group = layout.groups[0];
    group.segments = {layout.groups[0].segments[segment]};
    return static_cast<double>(layout::ResidentBytes(group, kMillion)) /
           static_cast<double>(group.segments[0].layers.size()) / (1 << 20);
  };
  EXPECT_EQ(layer_mib(0) + layer_mib(1), v["csa_MiB_per_layer"]);
  EXPECT_EQ(layer_mib(2), v["hca_MiB_per_layer"]);
  EXPECT_NEAR(HistoryGib("deepseek-v4-pro-bf16"), v["GiB"].get<double>(), 1e-6);
  EXPECT_NEAR(static_cast<double>(Memory("deepseek-v4-pro-bf16", kMillion).bytes) / kGib,
              v["with_swa_GiB"].get<double>(), 1e-6);
}

TEST(ArticleVectors, RatiosBetweenDeepSeeks) {
  const Vector& v = Article("a000_v32_ratio")["correct"];
  EXPECT_EQ(HistoryGib("deepseek-v3.2-bf16"), v["v32_GiB"]);
  EXPECT_NEAR(HistoryGib("deepseek-v3.2-bf16") / HistoryGib("deepseek-v4-pro-bf16"), v["ratio"].get<double>(),
              0.00005);
  EXPECT_NEAR(HistoryGib("deepseek-v3.2-fp8") / HistoryGib("deepseek-v4-pro"),
              Article("paper_ratio_pro")["correct"].get<double>(), 0.00005);
  EXPECT_NEAR(HistoryGib("deepseek-v3.2-fp8") / HistoryGib("deepseek-v4-flash"),
              Article("paper_ratio_flash")["correct"].get<double>(), 0.0005);
}

TEST(ArticleVectors, TwoPercentOfPlainGqaAreThoseOfTheServedRows) {
  const Vector& v = Article("a000_v4_pct");
  const calc::MemoryUse bf16 = Memory("deepseek-v4-pro-bf16", kMillion),
                        served = Memory("deepseek-v4-pro", kMillion);
  EXPECT_EQ(static_cast<double>(served.plain_gqa_bytes) / kGib, v["inputs"]["gqa8_61_layers_bf16_GiB"]);
  const auto percent = [](const calc::MemoryUse& use) {
    return 100 * static_cast<double>(use.history_bytes) / static_cast<double>(use.plain_gqa_bytes);
  };
  EXPECT_NEAR(percent(bf16), v["correct"]["pct_9_62"].get<double>(), 0.0006);
  EXPECT_NEAR(percent(served), v["correct"]["pct_shipped"].get<double>(), 0.0006);
}

TEST(ArticleVectors, Glm52AndMiniMaxM3) {
  const Vector& glm = Article("a000_glm52")["correct"];
  EXPECT_EQ(HistoryGib("glm-5.2-bf16"), glm["bf16_GiB"]);
  EXPECT_NEAR(HistoryGib("glm-5.2-fp8"), glm["fp8_GiB"].get<double>(), 0.00005);
  const Vector& m3 = Article("a000_m3")["correct"];
  EXPECT_EQ(HistoryGib("minimax-m3-bf16"), m3["bf16_GiB"]);
  EXPECT_EQ(HistoryGib("minimax-m3-fp8-bf16"), m3["fp8_kv_bf16_idx_GiB"]);
  EXPECT_EQ(HistoryGib("minimax-m3-fp8"), m3["fp8_all_GiB"]);
}

TEST(ArticleVectors, AttentionAvoidedByAHitOf8000TokensIs64Percent) {
  const Vector& v = Article("a000_94pct");
  // Scores of a causal prompt of n tokens grow with n squared.
  const auto saved = [](double cached, double fresh) { return std::pow(cached / (cached + fresh), 2); };
  EXPECT_NEAR(saved(v["inputs"]["cached"], v["inputs"]["new"]), v["correct"]["fraction"].get<double>(), 1e-9);
  EXPECT_NEAR(8192 / std::sqrt(0.94) - 8192, v["correct"]["new_tokens_for_94pct_at_8192"].get<double>(),
              0.05);
}

TEST(ArticleVectors, ThreePercentagesNeedThreeBaselines) {
  const Vector& v = Article("a000_baselines");
  std::set<double> baselines;
  const char* const models[] = {"v4", "glm", "m3"};
  for (size_t i = 0; i < 3; ++i) {
    const double baseline = v["inputs"][models[i]][0].get<double>() / v["inputs"][models[i]][1].get<double>();
    EXPECT_NEAR(baseline, v["correct"][i].get<double>(), 1e-9);
    baselines.insert(std::round(baseline));
  }
  EXPECT_EQ(baselines.size(), 3u);
}

TEST(ArticleVectors, NoneIsLeftOut) {
  const Vector all = Vector::parse(std::ifstream(CISTERN_ARTICLE_VECTORS), nullptr, false);
  EXPECT_EQ(all["article_vectors"].size(), 31u);  // As many as the tests above name.
  EXPECT_EQ(all["kernel_vectors"].size(), 15u);
}

}  // namespace
}  // namespace cistern
