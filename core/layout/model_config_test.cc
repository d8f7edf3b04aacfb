#include "core/layout/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/geometry.h"

// Whole configs against the shipped layouts: proto/layout_config_test.cc. Here: what is refused, and by which
// name.
namespace cistern::layout {
namespace {

using ::testing::HasSubstr;

constexpr char kLlama[] =
    R"("model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512)";

std::string Config(const std::string& fields) { return "{" + fields + "}"; }
std::string Llama(const std::string& more) { return Config(std::string(kLlama).append(", ").append(more)); }

void ExpectRefused(const std::string& json, const char* words, const ConfigQuery& query = {}) {
  const absl::StatusOr<Layout> layout = FromModelConfig(json, query);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(layout.status().message(), HasSubstr(words));
}

TEST(ModelConfig, HeadsAndTheirSizeHaveTheirUsualDefaults) {
  const absl::StatusOr<Layout> layout =
      FromModelConfig(Config(kLlama), {.model = "mine", .block_tokens = 32});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->model, "mine");
  EXPECT_EQ(layout->rows, "bf16");
  EXPECT_EQ(layout->block_tokens, 32u);
  EXPECT_EQ(layout->groups[0].segments[0].planes[0].heads, 8u);
  EXPECT_EQ(layout->groups[0].segments[0].planes[0].elements, 64u);
}

TEST(ModelConfig, RowsAreThoseAskedForOrTheConfigs) {
  EXPECT_EQ(FromModelConfig(Llama(R"("dtype": "float16")"), {})->groups[0].segments[0].planes[0].dtype,
            "fp16");
  const absl::StatusOr<Layout> fp8 = FromModelConfig(Config(kLlama), {.rows = "fp8"});
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_EQ(fp8->groups[0].segments[0].planes[1].dtype, "e4m3");
  EXPECT_EQ(fp8->groups[0].segments[0].planes[1].scale_rule, "per_tensor");
  EXPECT_EQ(BytesPerToken(*fp8), 2 * 8 * 64 * 2);
  ExpectRefused(Config(kLlama), "rows 'fp3': known are bf16, fp16 and fp8", {.rows = "fp3"});
  ExpectRefused(Config(kLlama), "a llama has no index keys", {.rows = "fp8/fp4"});
  ExpectRefused(Llama(R"("dtype": "float32")"), "torch_dtype is 'float32'");
}

TEST(ModelConfig, RefusesModelTypesItDoesNotKnowByName) {
  ExpectRefused("{}", "model_type '' is unknown; known are llama");
  ExpectRefused(R"({"model_type": "mamba9"})", "model_type 'mamba9' is unknown");
  ExpectRefused("[]", "no JSON object");
  ExpectRefused("{", "no JSON object");
  ExpectRefused("", "no JSON object");
  ExpectRefused(std::string(100000, '['), "no JSON object");
}

TEST(ModelConfig, RefusesFieldsThatShapeTheKvAndThatItDoesNotKnow) {
  ExpectRefused(Llama(R"("sliding_window": 4096)"), "sliding_window is 4096; this reader does not know");
  ExpectRefused(Llama(R"("num_kv_shared_layers": 10)"), "num_kv_shared_layers is 10");
  ExpectRefused(Llama(R"("attention_chunk_size": 8192)"), "attention_chunk_size is 8192");
  ExpectRefused(Llama(R"("use_sliding_window": true)"), "use_sliding_window is true");
  ExpectRefused(Llama(R"("layer_types": ["full_attention", "chunked_attention"])"),
                "layer_types has 'chunked_attention'; known here: full_attention");
  ExpectRefused(Llama(R"("layer_types": ["full_attention"])"), "layer_types has 1 entries for 2 layers");
  ExpectRefused(Llama(R"("quantization_config": {"kv_cache_scheme": {"type": "float"}})"),
                "kv_cache_scheme is given");
  EXPECT_TRUE(FromModelConfig(
                  Llama(R"("sliding_window": null, "use_cache": true, "rope_theta": 1e6, "cross": 0)"), {})
                  .ok());
}

TEST(ModelConfig, F55_RefusesNumbersThatCannotBe) {
  ExpectRefused(R"({"model_type": "llama", "torch_dtype": "bfloat16"})", "num_hidden_layers is missing");
  ExpectRefused(Llama(R"("num_hidden_layers": 0)"), "num_hidden_layers is 0, no whole number from 1 to 1024");
  ExpectRefused(Llama(R"("num_hidden_layers": -3)"), "num_hidden_layers is -3");
  ExpectRefused(Llama(R"("num_hidden_layers": 1e9)"), "num_hidden_layers is 1000000000.0");
  ExpectRefused(Llama(R"("head_dim": "wide")"), "head_dim is \"wide\"");
  ExpectRefused(Llama(R"("num_key_value_heads": 99999999999)"), "num_key_value_heads is 99999999999");
  ExpectRefused(Llama(R"("layer_types": 7)"), "layer_types is 7, no list");
  ExpectRefused(Llama(R"("num_key_value_heads": 3)"), "num_key_value_heads is 3, which 8 heads cannot share");
  ExpectRefused(Llama(R"("num_attention_heads": 7)"),
                "head_dim is missing, and hidden_size 512 is no multiple of 7 heads");
  ExpectRefused(Config(R"("model_type": "llama")"), "torch_dtype is missing; give the row format");
}

TEST(ModelConfig, RefusesHybridsThatDoNotSayWhichLayer) {
  const std::string gemma = R"("model_type": "gemma3_text", "torch_dtype": "bfloat16", "num_hidden_layers": 6,
      "num_attention_heads": 8, "hidden_size": 512)";
  ExpectRefused(Config(gemma), "sliding_window is missing");
  ExpectRefused(Config(gemma + R"(, "sliding_window": 64)"),
                "layer_types is missing: which layers have a window?");
  EXPECT_TRUE(
      FromModelConfig(Config(gemma + R"(, "sliding_window": 64, "sliding_window_pattern": 6)"), {}).ok());
  const std::string kimi = R"("model_type": "kimi_linear", "torch_dtype": "bfloat16", "num_hidden_layers": 2,
      "kv_lora_rank": 512, "qk_rope_head_dim": 64)";
  ExpectRefused(Config(kimi), "linear_attn_config is missing");
  const std::string linear =
      R"(, "linear_attn_config": {"num_heads": 8, "head_dim": 16, "short_conv_kernel_size": 4, )";
  ExpectRefused(Config(kimi + linear + R"("kda_layers": [1], "full_attn_layers": []})"),
                "have 1 of 2 layers");
  ExpectRefused(Config(kimi + linear + R"("kda_layers": [0], "full_attn_layers": [2]})"), "layers has 1024");
  EXPECT_TRUE(
      FromModelConfig(Config(kimi + linear + R"("kda_layers": [1], "full_attn_layers": [2]})"), {}).ok());
  const std::string v4 =
      R"("model_type": "deepseek_v4", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "head_dim": 512,
      "qk_rope_head_dim": 64, "sliding_window": 128, "index_head_dim": 128)";
  ExpectRefused(Config(v4), "compress_ratios has 0 entries for 2 layers");
  ExpectRefused(Config(v4 + R"(, "compress_ratios": [4, 16])"),
                "compress_ratios has 16; known are 0, 4 and 128");
  ExpectRefused(Config(v4 + R"(, "compress_ratios": [4, 128])"),
                "block_tokens is 64; a deepseek_v4 has a row per 128", {.block_tokens = 64});
  EXPECT_TRUE(FromModelConfig(Config(v4 + R"(, "compress_ratios": [4, 128, 0])"), {}).ok());
}

}  // namespace
}  // namespace cistern::layout
