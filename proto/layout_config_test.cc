#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/layout/encoding.h"
#include "core/layout/fields.h"
#include "core/layout/model_config.h"
#include "proto/layout_catalog.h"

namespace cistern {
namespace {

struct Case {
  const char* config;  // In core/layout/testdata/configs: the fields that matter, written for this test.
  const char* rows;
  uint32_t block_tokens;
  const char* shipped;
  const char* state_dtype = "";
};

class ConfigGivesShippedLayout : public ::testing::TestWithParam<Case> {};

// The shipped files and the reader of configs were made apart; both must come to the same bytes.
TEST_P(ConfigGivesShippedLayout, FieldByField) {
  const Case& c = GetParam();
  std::ifstream file(std::string(CISTERN_CONFIGS).append("/").append(c.config).append(".json"));
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const absl::StatusOr<layout::Layout> made = layout::FromModelConfig(
      json,
      {.model = c.config, .rows = c.rows, .state_dtype = c.state_dtype, .block_tokens = c.block_tokens});
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<ShippedLayout> shipped = FindLayout(c.shipped);
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  for (const layout::FieldChange& change : layout::Diff(shipped->layout, *made)) {
    EXPECT_FALSE(change.in_id) << change.path << ": shipped '" << change.before << "', from config '"
                               << change.after << "'";
  }
  EXPECT_EQ(layout::ComputeId(*made), shipped->id);
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigGivesShippedLayout,
    ::testing::Values(Case{"llama-3-8b", "", 64, "llama-3-8b"}, Case{"llama-3-70b", "", 64, "llama-3-70b"},
                      Case{"qwen3-32b", "", 64, "qwen3-32b"}, Case{"qwen3-30b-a3b", "", 64, "qwen3-30b-a3b"},
                      Case{"minimax-m2", "", 64, "minimax-m2"}, Case{"gpt-oss-20b", "", 128, "gpt-oss-20b"},
                      Case{"gemma-3-27b", "", 64, "gemma-3-27b"}, Case{"qwen3-next", "", 16, "qwen3-next"},
                      Case{"qwen3-next", "", 16, "qwen3-next-bf16-state", "bf16"},
                      Case{"kimi-k2", "", 32, "kimi-k2-bf16"}, Case{"kimi-k2", "fp8", 64, "kimi-k2-fp8"},
                      Case{"deepseek-v3.2", "", 32, "deepseek-v3.2-bf16"},
                      Case{"deepseek-v3.2", "fp8", 64, "deepseek-v3.2-fp8"},
                      Case{"glm-5.2", "", 32, "glm-5.2-bf16"}, Case{"glm-5.2", "fp8", 64, "glm-5.2-fp8"},
                      Case{"kimi-k3", "", 128, "kimi-k3-bf16"}, Case{"kimi-k3", "fp8", 128, "kimi-k3-fp8"},
                      Case{"deepseek-v4-pro", "", 256, "deepseek-v4-pro-bf16"},
                      Case{"deepseek-v4-pro", "fp8", 256, "deepseek-v4-pro-fp8"},
                      Case{"deepseek-v4-pro", "fp8/fp4", 256, "deepseek-v4-pro-fp8-fp4"},
                      Case{"deepseek-v4-flash", "fp8/fp4", 256, "deepseek-v4-flash-fp8-fp4"}),
    [](const auto& one) {
      std::string name = one.param.shipped;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

}  // namespace
}  // namespace cistern
