#include "proto/layout_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "core/layout/encoding.h"
#include "core/layout/geometry.h"
#include "proto/layout_catalog_data.h"
#include "proto/layout_text.h"

namespace cistern {
namespace {

using layout::Family;
using layout::Group;
using layout::Layout;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kMib = 1024.0 * 1024;
constexpr uint64_t kMillion = 1u << 20;

Layout Find(const char* name) {
  const absl::StatusOr<ShippedLayout> found = FindLayout(name);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? found->layout : Layout{};
}

double Resident(const Layout& layout, Family family, uint64_t tokens) {
  double bytes = 0;
  for (const Group& group : layout.groups) {
    if (group.family == family && !group.working)
      bytes += static_cast<double>(layout::ResidentBytes(group, tokens));
  }
  return bytes;
}

TEST(LayoutCatalog, EveryShippedFileIsAValidLayoutOfItsOwn) {
  std::set<LayoutId> ids;
  std::map<std::string, int> served;
  for (const EmbeddedText& embedded : EmbeddedLayouts()) {
    const absl::StatusOr<Layout> layout = ParseLayoutText(embedded.text, embedded.name);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_TRUE(embedded.name.starts_with(layout->model)) << embedded.name;
    EXPECT_FALSE(layout->rows.empty()) << embedded.name;
    EXPECT_TRUE(ids.insert(layout::ComputeId(*layout)).second) << embedded.name << " has another's id";
    served[layout->model] += layout->served ? 1 : 0;
    EXPECT_EQ(*ParseLayoutText(FormatLayoutText(*layout), "again"), *layout) << embedded.name;
    // No part has to be split over slots, and none is smaller than a tail's last span.
    for (const Group& group : layout->groups) {
      for (uint32_t span = 0; span < layout::SpanCount(group); ++span) {
        const uint64_t bytes = layout::PartBytes(*layout, group, span, kMillion);
        EXPECT_LE(bytes, kPartBytesMax) << embedded.name << " " << group.name;
        EXPECT_GE(bytes, 64u << 10) << embedded.name << " " << group.name;
        EXPECT_LE(layout::Stripes(*layout, group, span, kMillion).size(), layout::kStripesMax);
      }
    }
  }
  EXPECT_EQ(ids.size(), ShippedLayouts().size());
  for (const auto& [model, times] : served)
    EXPECT_EQ(times, 1) << model << ": which rows does its bare name mean?";
}

TEST(LayoutCatalog, FindsByFileByModelAndByRows) {
  EXPECT_EQ(FindLayout("deepseek-v4-pro")->name, "deepseek-v4-pro-fp8-fp4");
  EXPECT_EQ(FindLayout("deepseek-v4-pro-bf16")->layout.rows, "bf16");
  EXPECT_EQ(FindLayout("deepseek-v4-pro:fp8")->name, "deepseek-v4-pro-fp8");
  EXPECT_EQ(FindLayout("deepseek-v4-pro:fp8/fp4")->name, "deepseek-v4-pro-fp8-fp4");
  EXPECT_EQ(FindLayout("minimax-m3", "fp8/bf16")->name, "minimax-m3-fp8-bf16");
  EXPECT_EQ(FindLayout("llama-3-8b", "")->name, "llama-3-8b");
  const absl::Status unknown = FindLayout("gpt-oss").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("near it are gpt-oss-120b, gpt-oss-20b"));
  EXPECT_THAT(FindLayout("nothing-like-it").status().message(), HasSubstr("there are deepseek-v3.2-bf16"));
  EXPECT_THAT(FindLayout("llama-3-8b:fp3").status().message(),
              HasSubstr("has no rows 'fp3'; there are bf16"));
}

TEST(LayoutCatalog, ReadsAFileThatTheUserNames) {
  const std::string path = ::testing::TempDir() + "/own.textproto";
  std::ofstream(path) << FindLayout("gpt-oss-20b")->text;
  const absl::StatusOr<ShippedLayout> own = FindLayout(path);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->name, "own");
  EXPECT_EQ(own->id, FindLayout("gpt-oss-20b")->id);
  std::ofstream(path) << "groups {";
  EXPECT_THAT(FindLayout(path).status().message(), HasSubstr("own.textproto:1:"));
  std::remove(path.c_str());
  EXPECT_THAT(FindLayout(path).status().message(), HasSubstr("there is no layout file"));
  EXPECT_THAT(FindLayout("absent.textproto").status().message(), HasSubstr("there is no layout file"));
}

// Bytes of the history of one token, as published or added up from the model's shapes.
TEST(PublishedSizes, BytesPerToken) {
  const std::map<std::string, double> wanted = {
      {"llama-3-8b", 131072},         {"llama-3-70b", 327680},     {"qwen3-8b", 147456},
      {"qwen3-32b", 262144},          {"qwen3-30b-a3b", 98304},    {"qwen3-235b-a22b", 192512},
      {"qwen3-next", 24576},          {"gpt-oss-20b", 24576},      {"gpt-oss-120b", 36864},
      {"gemma-3-27b", 81920},         {"minimax-m2", 253952},      {"minimax-m3-bf16", 137472},
      {"minimax-m3-fp8-bf16", 76032}, {"minimax-m3-fp8", 68736},   {"deepseek-v3.2-bf16", 85888},
      {"deepseek-v3.2-fp8", 48068},   {"glm-5.2-bf16", 95232},     {"glm-5.2-fp8", 53940},
      {"kimi-k2-bf16", 70272},        {"kimi-k2-fp8", 61 * 656.0}, {"kimi-k3-bf16", 27648},
      {"kimi-k3-fp8", 24 * 656.0},    {"plain-40x4096", 655360},   {"qwen3-next-bf16-state", 24576}};
  for (const auto& [name, bytes] : wanted)
    EXPECT_EQ(layout::BytesPerToken(Find(name.c_str())), bytes) << name;
}

// What a sequence keeps however long it is: windows with the current token, states.
TEST(PublishedSizes, WindowsAndStates) {
  const auto mib = [](const char* name, Family family) {
    return Resident(Find(name), family, kMillion) / kMib;
  };
  EXPECT_EQ(mib("gpt-oss-20b", Family::kTailWindow), 3);
  EXPECT_EQ(mib("gpt-oss-120b", Family::kTailWindow), 4.5);
  EXPECT_EQ(mib("gemma-3-27b", Family::kTailWindow), 416);
  EXPECT_NEAR(mib("qwen3-next", Family::kTailState), 73.7, 0.05);
  EXPECT_NEAR(mib("qwen3-next-bf16-state", Family::kTailState), 37.7, 0.05);
  EXPECT_NEAR(mib("kimi-k3", Family::kTailState), 428.6, 0.05);
}

// Block sizes, slices and parts: MiB of the first part of each history group, and parts of a prompt of
// 131,072 tokens.
TEST(PublishedSizes, PartsOfAPrompt) {
  struct Case {
    const char* name;
    uint32_t block_tokens;
    uint16_t slices;
    double part_mib;
    uint64_t parts;
  };
  for (const Case& c : std::initializer_list<Case>{{"llama-3-8b", 64, 8, 1.0, 16384},
                                                   {"llama-3-70b", 64, 8, 2.5, 16384},
                                                   {"deepseek-v3.2-fp8", 64, 1, 2.9, 2048},
                                                   {"glm-5.2-fp8", 64, 1, 3.3, 2048},
                                                   {"deepseek-v4-pro", 256, 1, 1.2, 512},
                                                   {"minimax-m3", 128, 4, 3.75, 5120},
                                                   {"gpt-oss-120b", 128, 8, 576.0 / 1024, 8192},
                                                   {"gemma-3-27b", 64, 8, 640.0 / 1024, 16384},
                                                   {"qwen3-next", 16, 2, 192.0 / 1024, 16384},
                                                   {"kimi-k2", 32, 1, 2.1, 4096},
                                                   {"kimi-k3", 128, 1, 3.4, 1024}}) {
    const Layout layout = Find(c.name);
    EXPECT_EQ(layout.block_tokens, c.block_tokens) << c.name;
    EXPECT_EQ(layout.groups[0].slices, c.slices) << c.name;
    EXPECT_NEAR(static_cast<double>(layout::PartBytes(layout, layout.groups[0], 0, 0)) / kMib, c.part_mib,
                0.05)
        << c.name;
    EXPECT_EQ(layout::HistoryCoords(layout).size() * (131072 / layout.block_tokens), c.parts) << c.name;
  }
  const Layout m3 = Find("minimax-m3");
  EXPECT_NEAR(static_cast<double>(layout::PartBytes(m3, m3.groups[1], 0, 0)) / kMib, 1.8, 0.05);
  EXPECT_TRUE(m3.groups[1].replicated);
  EXPECT_EQ(Find("qwen3-next").groups[1].slices, 8u);
  EXPECT_EQ(Find("kimi-k3").groups[1].slices, 8u);
}

// A boundary's tail of DeepSeek V4 Pro: 128 rows of windows and compressors less the one that the next token
// makes.
TEST(PublishedSizes, TailOfDeepSeekV4) {
  const Layout v4 = Find("deepseek-v4-pro");
  ASSERT_EQ(v4.groups.size(), 4u);
  EXPECT_EQ(layout::GroupBytes(v4, v4.groups[1], kMillion), 127u * 61 * 584);  // 4.52 MB.
  EXPECT_EQ(layout::GroupBytes(v4, v4.groups[2], kMillion), 7u * 30 * 10240);
  EXPECT_EQ(layout::GroupBytes(v4, v4.groups[3], kMillion), 127u * 31 * 4096);
  EXPECT_EQ(layout::LayersOf(v4.groups[0]).size(), 61u);
  EXPECT_EQ(v4.groups[0].segments[0].layers.size(), 30u);
  EXPECT_EQ(v4.groups[0].segments[2].layers.size(), 31u);
  const Layout flash = Find("deepseek-v4-flash");
  EXPECT_EQ(flash.groups[0].segments[0].layers.size(), 21u);
  EXPECT_EQ(flash.groups[0].segments[2].layers.size(), 20u);
  EXPECT_EQ(flash.groups[1].segments[0].layers.size(), 43u);
}

TEST(PublishedSizes, RowsAsEnginesStoreThem) {
  const auto row = [](const char* name, size_t segment) {
    return layout::RowBytes(Find(name).groups[0].segments[segment]);
  };
  EXPECT_EQ(row("deepseek-v3.2-bf16", 0), 1152u);
  EXPECT_EQ(row("deepseek-v3.2-fp8", 0), 656u);
  EXPECT_EQ(row("deepseek-v3.2-fp8", 1), 132u);
  EXPECT_EQ(row("deepseek-v4-pro", 0), 584u);
  EXPECT_EQ(row("deepseek-v4-pro", 1), 68u);
  EXPECT_EQ(row("deepseek-v4-pro-fp8", 1), 132u);
  EXPECT_EQ(row("llama-3-8b", 0), 512u);  // 4 d: K and V of one head.
  EXPECT_THAT(Find("glm-5.2").groups[0].segments[1].layers,
              ElementsAre(0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74));
}

}  // namespace
}  // namespace cistern
