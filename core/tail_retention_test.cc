#include "core/tail_retention.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/tail_simulation.h"
#include "core/trace_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<WantedTail> Choose(const char* policy, const TailSituation& situation) {
  std::vector<WantedTail> out;
  ChooseTails(*ParseTailRetention(policy), situation, out);
  return out;
}

TEST(TailRetention, NamesComeBack) {
  for (const char* name : {"ends", "junctions", "every:4096"}) {
    ASSERT_TRUE(ParseTailRetention(name).ok()) << name;
    EXPECT_EQ(TailRetentionName(*ParseTailRetention(name)), name);
  }
  for (const char* wrong : {"", "end", "every", "every:", "every:0", "every:-1", "every:x", "Ends"}) {
    EXPECT_THAT(std::string(ParseTailRetention(wrong).status().message()),
                HasSubstr("ends, junctions or every:N"))
        << wrong;
  }
}

TEST(TailRetention, KeepsTheEndsOfPromptAndTurnsBehindTheHit) {
  const std::vector<uint64_t> turns = {100, 300, 513, 700};
  const TailSituation situation{
      .hit_tokens = 256, .history_tokens = 512, .max_tokens = 1000, .align_tokens = 64, .turn_ends = turns};
  EXPECT_THAT(Choose("ends", situation), ElementsAre(WantedTail{512}, WantedTail{640}, WantedTail{960}));
  EXPECT_THAT(Choose("junctions", situation),
              ElementsAre(WantedTail{512, true}, WantedTail{640}, WantedTail{960}));
  EXPECT_THAT(Choose("every:200", situation),
              ElementsAre(WantedTail{512}, WantedTail{640}, WantedTail{768}, WantedTail{960}));
}

TEST(TailRetention, NothingBehindTheHitIsNothingToKeep) {
  EXPECT_THAT(
      Choose("junctions", {.hit_tokens = 960, .history_tokens = 960, .max_tokens = 1000, .align_tokens = 64}),
      IsEmpty());
  EXPECT_THAT(Choose("every:64", {.max_tokens = 63, .align_tokens = 64}), IsEmpty());
}

TEST(TailRetention, IsBounded) {
  const auto tails = Choose("every:1", {.max_tokens = 1u << 20, .align_tokens = 16});
  EXPECT_EQ(tails.size(), kTailsPerRequestMax);
  EXPECT_EQ(tails.back().tokens, 1u << 20);
}

TEST(TailSimulation, ASecondPromptThatLeavesAFirstOneMakesAJunction) {
  for (const bool junctions : {false, true}) {
    TailSimulation sim(*ParseTailRetention(junctions ? "junctions" : "ends"), 512);
    const std::vector<uint64_t> first = {1, 2, 3, 4}, second = {1, 2, 5}, third = {1, 2, 6};
    sim.Request(first, 2100);
    sim.Request(second, 1600);
    EXPECT_EQ(sim.totals().hit_blocks, 0u) << "no tail where they part";
    sim.Request(third, 1600);
    EXPECT_EQ(sim.totals().hit_blocks, junctions ? 2u : 0u);
    EXPECT_EQ(sim.totals().history_blocks, 4u);
    EXPECT_EQ(sim.totals().junctions, junctions ? 1u : 0u);
  }
}

struct TraceBar {
  const char* file;
  double ideal, ends, junctions, bytes;
};
// MODELS.md §8 and the bars of the issue. V4 with fp8 rows and FP4 indexer: 512 tokens of history are
// 2,576,096 bytes, a tail 23.2 MB.
constexpr TraceBar kBars[] = {{"conversation_trace.jsonl", .382, .355, .365, 1.6},
                              {"synthetic_trace.jsonl", .659, .51, .585, 1.4},
                              {"agentic_a_512.jsonl.zst", .964, .955, .960, 1.9}};
constexpr uint64_t kV4BlockBytes = 2 * (30 * 64 * (584 + 68) + 31 * 2 * 584);
constexpr uint64_t kV4TailBytes = 61 * 127 * 584 + 30 * 7 * 4 * 2 * (1024 + 256) + 31 * 127 * 4096;

TEST(TailSimulation, ReachesTheBarsOnPublicTraces) {
  const char* set = std::getenv("CISTERN_TRACES");
  const std::string folder = set != nullptr ? set : CISTERN_TRACES_DEFAULT;
  for (const TraceBar& bar : kBars) {
    const std::string path = folder + "/" + bar.file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no trace " << path;
    double ratio[2] = {};
    for (const bool junctions : {false, true}) {
      auto trace = TraceReader::Open(path);
      ASSERT_TRUE(trace.ok());
      TailSimulation sim(*ParseTailRetention(junctions ? "junctions" : "ends"), 512);
      TraceRequest request;
      while ((*trace)->Next(request, [](uint64_t, std::string_view) {}))
        sim.Request(request.hash_ids, request.input_tokens);
      const auto& totals = sim.totals();
      ratio[junctions] = totals.HitRatio();
      EXPECT_NEAR(totals.IdealRatio(), bar.ideal, .0006) << bar.file;
      EXPECT_LE(totals.BytesOverHistory(kV4BlockBytes, kV4TailBytes), bar.bytes) << bar.file;
      std::printf("%s %s: hit ratio %.4f, ideal %.4f, V4 bytes over history %.3f\n", bar.file,
                  junctions ? "junctions" : "ends", totals.HitRatio(), totals.IdealRatio(),
                  totals.BytesOverHistory(kV4BlockBytes, kV4TailBytes));
    }
    EXPECT_GE(ratio[0], bar.ends) << bar.file;
    EXPECT_GE(ratio[1], bar.junctions) << bar.file;
  }
}

}  // namespace
}  // namespace cistern
