// What a sequence of 1,048,576 tokens keeps, model by model, against the figures that papers, vendors and the
// engines' sources give. One row a published figure, named by it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/layout/geometry.h"
#include "proto/layout_catalog.h"

namespace cistern {
namespace {

using layout::Family;

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr uint64_t kMillion = 1u << 20;

double Resident(const char* name, Family family, uint64_t tokens = kMillion) {
  const absl::StatusOr<ShippedLayout> found = FindLayout(name);
  EXPECT_TRUE(found.ok()) << found.status();
  if (!found.ok()) return 0;
  double bytes = 0;
  for (const layout::Group& group : found->layout.groups) {
    if (group.family == family && !group.working)
      bytes += static_cast<double>(layout::ResidentBytes(group, tokens));
  }
  return bytes;
}
double History(const char* name) { return Resident(name, Family::kHistory); }

// vLLM's pages of V4: 256 tokens of one layer's cache, padded to a multiple of 576 B; rows and scales of one
// cache share a page, the indexer has its own.
double VllmPages(const char* name) {
  const layout::Layout layout = FindLayout(name)->layout;
  double bytes = 0;
  for (const layout::Segment& segment : layout.groups[0].segments) {
    const uint64_t raw = 256 / segment.tokens_per_row * layout::RowBytes(segment);
    bytes += static_cast<double>((raw + 575) / 576 * 576 * segment.layers.size());
  }
  return bytes;
}
constexpr double kPages = static_cast<double>(kMillion) / 256;

// 61 layers of 8 KV heads of 128 elements, K and V in bf16: what "plain GQA" means beside V4 Pro.
constexpr double kPlainGqa = 61.0 * 2 * 8 * 128 * 2 * kMillion;

struct Figure {
  std::string name;
  double published;
  double digits;  // Half a step of the published figure's last digit.
  double ours;
};
void PrintTo(const Figure& figure, std::ostream* out) { *out << figure.published; }

class PublishedAtAMillionTokens : public ::testing::TestWithParam<Figure> {};

TEST_P(PublishedAtAMillionTokens, IsReached) {
  EXPECT_NEAR(GetParam().ours, GetParam().published, GetParam().digits * 1.0000001);
}

std::vector<Figure> Figures() {
  const auto gib = [](const char* name) { return History(name) / kGib; };
  const auto windows = [](const char* name) { return Resident(name, Family::kTailWindow) / kGib; };
  const auto state = [](const char* name) { return Resident(name, Family::kTailState) / kGib; };
  const auto ratio = [](const char* a, const char* b) { return History(a) / History(b); };
  return {
      {"V4ProBf16_9_617", 9.617, .0005, gib("deepseek-v4-pro-bf16")},
      {"V4ProBf16WithWindows_9_625", 9.625, .0005,
       gib("deepseek-v4-pro-bf16") + windows("deepseek-v4-pro-bf16")},
      {"V4ProFp8RowsFp8Indexer_5_382", 5.382, .0005, gib("deepseek-v4-pro-fp8")},
      {"V4ProFp8RowsFp8IndexerInVllmPages_5_478", 5.478, .0005,
       VllmPages("deepseek-v4-pro-fp8") * kPages / kGib},
      {"V4ProBytesOfVllmPagesOf256Tokens_1435968", 1435968, 0, VllmPages("deepseek-v4-pro-fp8")},
      {"V4ProFp8RowsFp4Indexer_4_914", 4.914, .0005, gib("deepseek-v4-pro-fp8-fp4")},
      {"V4ProFp8RowsFp4IndexerInVllmPages_5_016", 5.016, .0005,
       VllmPages("deepseek-v4-pro-fp8-fp4") * kPages / kGib},
      {"V4FlashBf16_6_719", 6.719, .0005, gib("deepseek-v4-flash-bf16")},
      {"V4FlashFp8RowsFp4Indexer_3_432", 3.432, .0005, gib("deepseek-v4-flash-fp8-fp4")},
      {"V32Bf16_83_875", 83.875, 0, gib("deepseek-v3.2-bf16")},
      {"V32Fp8_46_941", 46.941, .0005, gib("deepseek-v3.2-fp8")},
      {"V32OverV4ProBothBf16_8_721", 8.721, .0005, ratio("deepseek-v3.2-bf16", "deepseek-v4-pro-bf16")},
      {"V32OverV4ProBothFp8_8_7215", 8.7215, .00005, ratio("deepseek-v3.2-fp8", "deepseek-v4-pro-fp8")},
      {"V32Fp8OverV4ProAsServed_9_554", 9.554, .0005, ratio("deepseek-v3.2-fp8", "deepseek-v4-pro")},
      {"V32Fp8OverV4FlashAsServed_13_678", 13.678, .0005, ratio("deepseek-v3.2-fp8", "deepseek-v4-flash")},
      {"PlainGqaOf61Layers_244", 244, 0, kPlainGqa / kGib},
      {"V4ProAsServedPercentOfPlainGqa_2_01", 2.01, .005, 100 * History("deepseek-v4-pro") / kPlainGqa},
      {"V4ProBf16PercentOfPlainGqa_3_9", 3.9, .05, 100 * History("deepseek-v4-pro-bf16") / kPlainGqa},
      {"Glm52Bf16_93_0", 93.0, 0, gib("glm-5.2-bf16")},
      {"Glm52Fp8_52_68", 52.68, .005, gib("glm-5.2-fp8")},
      {"MiniMaxM3Bf16_134_25", 134.25, 0, gib("minimax-m3-bf16")},
      {"MiniMaxM3Fp8Bf16Index_74_25", 74.25, 0, gib("minimax-m3-fp8-bf16")},
      {"MiniMaxM3AllFp8_67_13", 67.13, .005, gib("minimax-m3-fp8")},
      {"KimiK3Bf16_27_0", 27.0, 0, gib("kimi-k3-bf16")},
      {"KimiK3Rows656_15_4", 15.4, .05, gib("kimi-k3-fp8")},
      {"KimiK3State_0_42", 0.42, .005, state("kimi-k3")},
      {"Qwen3Next_24_0", 24.0, 0, gib("qwen3-next")},
      {"Qwen3NextState_0_07", 0.07, .005, state("qwen3-next")},
      {"Llama70b_320", 320, 0, gib("llama-3-70b")},
      {"Llama70bAt8192_2_5", 2.5, 0, Resident("llama-3-70b", Family::kHistory, 8192) / kGib},
      {"Llama8b_128", 128, 0, gib("llama-3-8b")},
      {"Plain40Layers655GB_at10e6", 655.36, 0, Resident("plain-40x4096", Family::kHistory, 1000000) / 1e9},
  };
}

INSTANTIATE_TEST_SUITE_P(All, PublishedAtAMillionTokens, ::testing::ValuesIn(Figures()),
                         [](const auto& figure) { return figure.param.name; });

}  // namespace
}  // namespace cistern
