#include "core/calc/flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace cistern {
namespace {

using ::testing::HasSubstr;

ModelFacts Model(const char* name) {
  const auto models = LoadModels("");
  EXPECT_TRUE(models.ok()) << models.status();
  const auto model = FindModel(*models, name);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

double AttentionSaved(const ModelFacts& model, uint64_t prefix, uint64_t fresh) {
  return 1 -
         CountFlops(model, prefix, prefix + fresh).attention / CountFlops(model, 0, prefix + fresh).attention;
}

TEST(VisibleKeys, IsTheSumOverQueries) {
  const uint32_t seed = 20261129;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 400; ++round) {
    const uint64_t queries = random() % 3000;
    const uint64_t stride = 1 + random() % (round % 3 == 0 ? 1 : 200);
    const uint64_t cap = round % 2 == 0 ? 0 : 1 + random() % 600;
    double sum = 0;
    for (uint64_t t = 0; t < queries; ++t) {
      const uint64_t all = (t + 1) / stride;
      sum += static_cast<double>(cap == 0 ? all : std::min(all, cap));
    }
    EXPECT_EQ(VisibleKeys(queries, stride, cap), sum) << queries << " " << stride << " " << cap;
  }
}

// Of article_vectors.json, a000_94pct: the article says that 8,000 cached tokens before 2,000 new ones avoid
// 94 % of the attention's FLOPs. It is 64 %; 94 % takes about 257 new tokens after 8,192.
TEST(Flops, DenseAttentionSavesWhatTheArticleGetsWrong) {
  for (const char* name : {"llama-3-8b", "llama-3-70b", "minimax-m2", "kimi-k2"}) {
    const ModelFacts model = Model(name);
    EXPECT_NEAR(AttentionSaved(model, 8000, 2000), 0.64, 0.0001) << name;
    EXPECT_NEAR(AttentionSaved(model, 8192, 257), 0.94, 0.0005) << name;
  }
}

TEST(Flops, EachFamilySavesByItsOwnRule) {
  ModelFacts model;
  model.linear_params = 1;
  const auto saved = [&model](AttentionTerm term) {
    model.attention = {std::move(term)};
    return AttentionSaved(model, 8000, 2000);
  };
  // Work that does not grow with the position: the saved share is that of the tokens.
  EXPECT_DOUBLE_EQ(saved({.family = "state", .layers = 1, .heads = 1, .qk_dim = 8, .v_dim = 8}), 0.8);
  // A window is full after its first tokens; top-k at k = 2048 later.
  EXPECT_NEAR(saved({.family = "window", .layers = 1, .heads = 1, .qk_dim = 8, .v_dim = 8, .cap = 128}), 0.8,
              0.002);
  const double topk =
      saved({.family = "topk", .layers = 1, .heads = 1, .qk_dim = 8, .v_dim = 8, .cap = 2048});
  EXPECT_NEAR(topk, 1 - 2000 * 2048.0 / (2048 * 2049 / 2 + 7952 * 2048.0), 1e-12);
  // An indexer looks at everything: quadratic like full attention.
  EXPECT_NEAR(saved({.family = "indexer", .layers = 1, .heads = 1, .qk_dim = 8}), 0.64, 0.0001);
  // 8,000 tokens are 62 whole rows of 128, 10,000 are 78: a little below the square's 64 %.
  EXPECT_NEAR(
      saved({.family = "compressed", .layers = 1, .heads = 1, .qk_dim = 8, .v_dim = 8, .stride = 128}), 0.638,
      0.0001);
}

TEST(Flops, HybridsLieBetween) {
  for (const char* name : {"gpt-oss-20b", "gemma-3-27b", "qwen3-next", "deepseek-v3.2", "deepseek-v4-pro",
                           "deepseek-v4-flash", "glm-5.2", "minimax-m3", "kimi-k3"}) {
    const double saved = AttentionSaved(Model(name), 8000, 2000);
    EXPECT_GT(saved, 0.6402) << name;
    EXPECT_LT(saved, 0.8) << name;
  }
}

TEST(Flops, PartsAddUp) {
  const ModelFacts model = Model("deepseek-v4-pro");
  const Flops whole = CountFlops(model, 0, 30000);
  const Flops first = CountFlops(model, 0, 12345);
  const Flops rest = CountFlops(model, 12345, 30000);
  EXPECT_NEAR(first.total() + rest.total(), whole.total(), 1e-9 * whole.total());
  ASSERT_EQ(whole.terms.size(), model.attention.size());
  double sum = 0;
  for (const double term : whole.terms) sum += term;
  EXPECT_DOUBLE_EQ(sum, whole.attention);
  EXPECT_EQ(CountFlops(model, 7, 7).total(), 0);
}

// 2 FLOPs a weight and token, plus 4 x heads x head size a key: counted by hand for the first two tokens.
TEST(Flops, CountsWhatALayerDoes) {
  ModelFacts model;
  model.linear_params = 1000;
  model.attention = {{.family = "full", .layers = 3, .heads = 2, .qk_dim = 16, .v_dim = 16}};
  const Flops flops = CountFlops(model, 0, 2);
  EXPECT_EQ(flops.linear, 4000);
  EXPECT_EQ(flops.attention, 3 * 2 * (2 * 16 + 2 * 16) * (1 + 2));
}

TEST(Models, AreAllSound) {
  const auto models = LoadModels("");
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_GE(models->size(), 19u);
  for (const ModelFacts& model : *models) {
    uint32_t layers = 0;
    for (const AttentionTerm& term : model.attention) layers += term.family == "indexer" ? 0 : term.layers;
    EXPECT_GE(layers, 24u) << model.name;
    EXPECT_FALSE(model.source.empty()) << model.name;
  }
  // Weights of a dense model follow from its shape.
  EXPECT_EQ(Model("llama-3-70b").linear_params,
            80.0 * (2.0 * 8192 * 8192 + 2.0 * 8192 * 1024 + 3.0 * 8192 * 28672));
  EXPECT_EQ(Model("llama-3-70b").kv_bytes_per_token, 80 * 8 * 128 * 2 * 2);
  EXPECT_EQ(Model("deepseek-v4-pro").kv_bytes_per_token * (1 << 20),
            30.0 * (1 << 18) * (584 + 68) + 31.0 * (1 << 13) * 584);
}

TEST(Models, AnUnknownNameListsTheKnown) {
  const auto models = LoadModels("");
  ASSERT_TRUE(models.ok());
  const auto none = FindModel(*models, "llama-9");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("'llama-9'"));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("llama-3-70b, qwen3-8b"));
}

TEST(Models, WhatIsWrongIsNamed) {
  const auto why = [](const std::string& entry) {
    return std::string(ParseModels("{\"models\": [" + entry + "]}", "f").status().message());
  };
  const std::string good = R"("name": "m", "linear_params": 1e9, "kv_bytes_per_token": 4, "source": "s",)";
  const std::string term = R"({"family": "full", "layers": 1, "heads": 1, "qk_dim": 1, "v_dim": 1})";
  EXPECT_EQ(why("{" + good + "\"attention\": [" + term + "]}"), "");
  EXPECT_THAT(why("{" + good + "\"attention\": []}"), HasSubstr("f: model 1 (m): field attention"));
  EXPECT_THAT(why("{" + good + "\"layers\": 3, \"attention\": [" + term + "]}"),
              HasSubstr("no field layers"));
  EXPECT_THAT(
      why(R"({"name": "m", "linear_params": -1, "kv_bytes_per_token": 4, "source": "s", "attention": [)" +
          term + "]}"),
      HasSubstr("linear_params"));
  EXPECT_THAT(why("{" + good + R"("attention": [{"family": "magic", "layers": 1, "heads": 1, "qk_dim": 1,
                                                  "v_dim": 1}]})"),
              HasSubstr("'magic' is none of"));
  EXPECT_THAT(why("{" + good + R"("attention": [{"family": "window", "layers": 1, "heads": 1, "qk_dim": 1,
                                                  "v_dim": 1}]})"),
              HasSubstr("attention 1: field cap is missing"));
  EXPECT_THAT(why("{" + good + R"("attention": [{"family": "full", "layers": 0, "heads": 1, "qk_dim": 1,
                                                  "v_dim": 1}]})"),
              HasSubstr("layers"));
  EXPECT_THAT(why("3"), HasSubstr("is no JSON object"));
  EXPECT_THAT(std::string(ParseModels("{", "f").status().message()), HasSubstr("f: is not JSON"));
  EXPECT_THAT(std::string(ParseModels("{\"model\": []}", "f").status().message()), HasSubstr("models"));
}

}  // namespace
}  // namespace cistern
