// A model's config.json to a layout: hostile JSON is refused, and what is taken is a valid layout.
#include <string>

#include "core/layout/geometry.h"
#include "core/layout/model_config.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  const std::string shape = R"("torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 8,
"num_key_value_heads": 4, "hidden_size": 512, "head_dim": 64, "sliding_window": 128, "qk_rope_head_dim": 64, "kv_lora_rank": 512,
"index_head_dim": 128, "index_topk_freq": 2, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 16,
"linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "compress_ratios": [0, 4, 128, 4])";
  for (const std::string& type : layout::KnownModelTypes())
    add(type, "a{\"model_type\": \"" + type + "\", " + shape + "}");
  add("kimi",
      R"(b{"model_type": "kimi_linear", "num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
"linear_attn_config": {"num_heads": 8, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1], "full_attn_layers": [2]}})");
  add("gemma",
      R"(a{"text_config": {"model_type": "gemma3_text", "torch_dtype": "float16", "num_hidden_layers": 2,
"num_attention_heads": 8, "hidden_size": 512, "sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]}})");
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  if (size == 0) return 0;
  static const char* const kRows[] = {"", "bf16", "fp8", "fp8/fp4", "fp8/bf16", "?"};
  layout::ConfigQuery query;
  query.rows = kRows[data[0] % 6];
  query.block_tokens = data[0] / 6 * 64;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const absl::StatusOr<layout::Layout> layout = layout::FromModelConfig(body, query);
  if (!layout.ok()) return 0;
  FUZZ_REQUIRE(layout::Validate(*layout).ok());
  FUZZ_REQUIRE(!layout->groups.empty());
  for (const layout::Group& group : layout->groups) {
    for (uint32_t span = 0; span < layout::SpanCount(group); ++span)
      FUZZ_REQUIRE(layout::PartBytes(*layout, group, span, 1u << 20) > 0);
  }
  return 0;
}
