// `cistern layout` and `cistern calc memory` from the command line to what is printed. No cluster.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Ran {
  int code = -1;
  std::string out, err;
  Json json() const { return Json::parse(out, nullptr, false); }
};

Ran Call(std::vector<const char*> words) {
  static const std::map<std::string, int (*)(const CliOptions&)> kCommands = {
      {"layout list", RunLayoutList},
      {"layout show", RunLayoutShow},
      {"layout check", RunLayoutCheck},
      {"layout diff", RunLayoutDiff},
      {"layout from-config", RunLayoutFromConfig},
      {"calc memory", RunCalcMemory}};
  words.insert(words.begin(), "cistern");
  CliOptions options;
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const std::optional<int> parsed = ParseFlags(static_cast<int>(words.size()), words.data(), options);
  ran.code = parsed ? *parsed : kCommands.at(options.command)(options);
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

std::string TempFile(const char* name, const std::string& body) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << body;
  return path;
}

TEST(LayoutCommand, ListShowsEveryLayout) {
  const Json list = Call({"layout", "list", "--json"}).json()["layouts"];
  EXPECT_EQ(list.size(), 30u);
  EXPECT_THAT(Call({"layout", "list"}).out, HasSubstr("deepseek-v4-pro-fp8-fp4"));
}

TEST(LayoutCommand, ShowGivesGroupsAndTheTextComesBack) {
  const Ran shown = Call({"layout", "show", "gpt-oss-20b", "--json", "--text"});
  EXPECT_EQ(shown.code, 0);
  const Json json = shown.json();
  EXPECT_EQ(json["bytes_per_token"], 24576.0);
  EXPECT_EQ(json["groups"][1]["family"], "window");
  EXPECT_EQ(json["groups"][1]["bytes"], 127 * 24576);
  const std::string path = TempFile("oss.textproto", json["text"]);
  const Json checked = Call({"layout", "check", path.c_str(), "--json"}).json();
  EXPECT_EQ(checked["ok"], true);
  EXPECT_EQ(checked["files"][0]["id"], json["id"]);
  EXPECT_THAT(Call({"layout", "show", "gpt-oss-20b"}).out, HasSubstr("window"));
  EXPECT_EQ(Call({"layout", "show", "gpt-oss-20b", "--text"}).out, json["text"]);
  const Ran unknown = Call({"layout", "show", "gpt-oss-21b"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no layout 'gpt-oss-21b'"));
}

TEST(LayoutCommand, CheckFallsShortOfABrokenFileAndNamesTheField) {
  std::string text = Call({"layout", "show", "llama-3-8b", "--text"}).out;
  text.replace(text.find("slices: 8"), 9, "slices: 5");
  const std::string path = TempFile("broken.textproto", text);
  const Ran ran = Call({"layout", "check", path.c_str(), "--json"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.json()["files"][0]["error"].get<std::string>(),
              HasSubstr("heads is 8, which 5 slices do not divide"));
  EXPECT_EQ(Call({"layout", "check", "/dev/null/absent"}).code, 2);
}

TEST(LayoutCommand, DiffNamesTheFieldsAndExits1ForOtherIds) {
  const Ran other = Call({"layout", "diff", "minimax-m3-fp8", "minimax-m3:fp8/bf16", "--json"});
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.json()["same_id"], false);
  EXPECT_THAT(other.out, HasSubstr("groups[1].segments[0].planes[0].dtype"));
  const Ran same = Call({"layout", "diff", "llama-3-8b", "llama-3-8b"});
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out, HasSubstr("one id"));
}

TEST(LayoutCommand, FromConfigPrintsALayoutThatCheckTakes) {
  const std::string config =
      TempFile("config.json", R"({"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096})");
  const Ran made = Call({"layout", "from-config", config.c_str(), "--block-tokens", "64", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.json()["id"], Call({"layout", "show", "llama-3-8b", "--json"}).json()["id"]);
  const std::string text = Call({"layout", "from-config", config.c_str()}).out;
  EXPECT_EQ(Call({"layout", "check", TempFile("made.textproto", text).c_str()}).code, 0);
  const std::string odd = TempFile("odd.json", R"({"model_type": "perceiver"})");
  const Ran refused = Call({"layout", "from-config", odd.c_str()});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("model_type 'perceiver' is unknown"));
  EXPECT_EQ(Call({"layout", "from-config", "absent.json"}).code, 2);
}

TEST(CalcMemoryCommand, GivesThePublishedFigures) {
  const Ran ran = Call({"calc", "memory", "--model", "deepseek-v4-pro", "--context", "1M", "--compare",
                        "deepseek-v3.2", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json json = ran.json();
  EXPECT_EQ(json["model"], "deepseek-v4-pro");
  EXPECT_EQ(json["rows"], "fp8/fp4");
  EXPECT_EQ(json["tokens"], 1048576);
  EXPECT_NEAR(json["history_gib"].get<double>(), 4.914, 0.0005);
  EXPECT_NEAR(json["gib"].get<double>(), 4.918, 0.0005);
  EXPECT_NEAR(json["plain_gqa_ratio"].get<double>(), 0.0201, 0.00005);
  EXPECT_NEAR(json["compare"][0]["ratio"].get<double>(), 9.554, 0.001);
  EXPECT_EQ(json["groups"][0]["bytes"].get<uint64_t>() + json["groups"][1]["bytes"].get<uint64_t>(),
            json["bytes"]);
  EXPECT_EQ(json["working"].size(), 2u);
  const Ran text = Call({"calc", "memory", "--model", "deepseek-v4-pro", "--context", "1M"});
  EXPECT_THAT(text.out, HasSubstr("history alone, as papers count: 4.914 GiB"));
  EXPECT_THAT(text.out, HasSubstr("plain GQA, 61 layers    |================"));
  EXPECT_THAT(text.out, HasSubstr("deepseek-v4-pro-fp8-fp4 |# 4.918 GiB"));
}

TEST(CalcMemoryCommand, TakesRowsAndBatch) {
  const auto bytes = [](std::vector<const char*> more) {
    std::vector<const char*> words = {"calc", "memory", "--json", "--context", "8192"};
    words.insert(words.end(), more.begin(), more.end());
    return Call(words).json()["bytes"].get<uint64_t>();
  };
  EXPECT_EQ(bytes({"--model", "llama-3-70b"}), uint64_t{8192} * 327680);
  EXPECT_EQ(bytes({"--model", "llama-3-70b", "--dtype", "bf16", "--batch", "4"}),
            uint64_t{4} * 8192 * 327680);
  EXPECT_EQ(bytes({"--model", "minimax-m3", "--dtype", "fp8/bf16"}), uint64_t{8192} * 76032);
  EXPECT_EQ(bytes({"--model", "minimax-m3-fp8"}), uint64_t{8192} * 68736);
  EXPECT_EQ(bytes({"--model", "minimax-m3-fp8", "--dtype", "bf16"}), uint64_t{8192} * 137472);
}

TEST(CalcMemoryCommand, SaysHowManySequencesFit) {
  const Ran ran = Call({"calc", "memory", "--model", "llama-3-70b", "--context", "8K", "--tp", "8", "--hbm",
                        "80G", "--weights", "132G", "--reserve", "8G", "--json"});
  const Json fit = ran.json()["fit"];
  EXPECT_EQ(fit["weights_fit"], true);
  EXPECT_EQ(fit["sequence_bytes"], uint64_t{8192} * 327680 / 8);
  EXPECT_EQ(fit["sequences"],
            (uint64_t{80 - 8} * 8 - 132) * (uint64_t{1} << 30) / 8 / (uint64_t{8192} * 327680 / 8));
  const Ran none = Call(
      {"calc", "memory", "--model", "llama-3-70b", "--context", "8K", "--hbm", "80G", "--weights", "132G"});
  EXPECT_EQ(none.code, 0);
  EXPECT_THAT(none.out, HasSubstr("the weights do not fit"));
}

TEST(CalcMemoryCommand, WritesAnSvgChart) {
  const std::string path = testing::TempDir() + "/chart.svg";
  EXPECT_EQ(Call({"calc", "memory", "--model", "glm-5.2", "--context", "1M", "--svg", path.c_str()}).code, 0);
  std::ifstream file(path);
  const std::string svg((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 40);
  EXPECT_THAT(svg, HasSubstr("52.676 GiB"));
  std::remove(path.c_str());
  EXPECT_EQ(
      Call({"calc", "memory", "--model", "glm-5.2", "--context", "1M", "--svg", "/dev/null/x.svg"}).code, 2);
}

TEST(CalcMemoryCommand, F65_WrongInputIsOneLineAndExit2) {
  const std::vector<std::vector<const char*>> wrong = {
      {"calc", "memory"},
      {"calc", "memory", "--model", "llama-3-8b"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "0"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "many"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1T"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--tp", "3"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--dtype", "fp3"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--batch", "0"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--weights", "1G"},
      {"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--compare", "nothing-like-it"},
      {"calc", "memory", "--model", "../nothing", "--context", "1K"},
      {"layout", "show"},
      {"layout", "frobnicate"},
      {"layout", "diff", "llama-3-8b"},
  };
  for (const auto& words : wrong) {
    const Ran ran = Call(words);
    EXPECT_EQ(ran.code, 2) << ran.out << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
  EXPECT_THAT(Call({"calc", "memory", "--model", "llama-3-8b", "--context", "1K", "--tp", "3"}).err,
              HasSubstr("tp is 3"));
}

}  // namespace
}  // namespace cistern
