#include "client/cli/flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

struct Parsed {
  std::optional<int> code;
  CliOptions options;
  std::string out, err;
};

Parsed Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "cistern");
  Parsed parsed;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.code = ParseFlags(static_cast<int>(words.size()), words.data(), parsed.options);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.err = testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(Flags, ReadsUpAsOtherToolsWriteIt) {
  const Parsed p = Parse(
      {"up", "--nodes", "3", "--dir", "/d", "--router", "127.0.0.1:9", "--detach", "--ram", "3G", "--json"});
  ASSERT_EQ(p.code, std::nullopt) << p.err;
  EXPECT_EQ(p.options.command, "up");
  EXPECT_EQ(p.options.up.nodes, 3);
  EXPECT_EQ(p.options.up.ram_bytes, uint64_t{3} << 30);
  EXPECT_EQ(p.options.dir, "/d");
  EXPECT_EQ(p.options.router, "127.0.0.1:9");
  EXPECT_TRUE(p.options.up.detach && p.options.json && p.options.up.router_given);
}

TEST(Flags, RouterComesFromTheEnvironmentUnlessGiven) {
  setenv("CISTERN_ROUTER", "127.0.0.1:5", 1);
  EXPECT_EQ(Parse({"status"}).options.router, "127.0.0.1:5");
  EXPECT_FALSE(Parse({"status"}).options.up.router_given);
  EXPECT_EQ(Parse({"status", "--router=127.0.0.1:6"}).options.router, "127.0.0.1:6");
  EXPECT_TRUE(Parse({"status", "--router=127.0.0.1:6"}).options.up.router_given);
  unsetenv("CISTERN_ROUTER");
  EXPECT_EQ(Parse({"status"}).options.router, kRouterAddressDefault);
}

TEST(Flags, ANegativeCountIsNotTakenForAHugeOne) {
  EXPECT_EQ(Parse({"replay", "f", "--requests", "7"}).options.replay.requests, 7u);
  for (const char* wrong : {"-1", "1.5", "18446744073709551615"}) {
    EXPECT_EQ(Parse({"replay", "f", "--requests", wrong}).code, 2) << wrong;
    EXPECT_EQ(Parse({"calc", "trace", "f", "--requests", wrong}).code, 2) << wrong;
  }
}

TEST(Flags, SpeedIsAFactorOrMax) {
  EXPECT_EQ(Parse({"replay", "f", "--speed", "max"}).options.replay.speed, 0);
  EXPECT_EQ(Parse({"replay", "f", "--speed", "2.5"}).options.replay.speed, 2.5);
  for (const char* wrong : {"0", "-1", "fast", "nan"})
    EXPECT_EQ(Parse({"replay", "f", "--speed", wrong}).code, 2) << wrong;
}

TEST(Flags, F65_WrongCommandsAndFlagsAreOneLineAndExit2) {
  const std::vector<std::vector<const char*>> wrong = {
      {},
      {"ticket"},
      {"frobnicate", "--json"},
      {"up", "--nodes", "0"},
      {"up", "--nodes", "many"},
      {"up", "--ram", "3X"},
      {"up", "--ram", "1K"},
      {"status", "--no-such-flag"},
      {"replay"},
      {"replay", "f", "--bytes-per-block", "1K"},
      {"replay", "f", "--bytes-per-block", "5M"},
      {"bench", "frob"},
      {"status", "--router", "nonsense"},
  };
  for (const auto& words : wrong) {
    const Parsed p = Parse(words);
    EXPECT_EQ(p.code, 2) << p.err;
    EXPECT_EQ(std::count(p.err.begin(), p.err.end(), '\n'), 1) << p.err;
    EXPECT_THAT(p.err, HasSubstr("cistern: "));
  }
  EXPECT_THAT(Parse({"ticket"}).err, HasSubstr("'ticket'"));
  EXPECT_THAT(Parse({"frobnicate", "--json"}).out, HasSubstr("{\"error\":"));
  EXPECT_THAT(Parse({"replay", "f", "--bytes-per-block", "5M"}).err, HasSubstr("4K to 4M"));
}

TEST(Flags, AWrongRouterIsNamedAsWhereItCameFrom) {
  setenv("CISTERN_ROUTER", "nonsense", 1);
  EXPECT_THAT(Parse({"status"}).err, HasSubstr("the variable CISTERN_ROUTER \"nonsense\""));
  EXPECT_THAT(Parse({"status", "--router", "other"}).err, HasSubstr("--router \"other\""));
  unsetenv("CISTERN_ROUTER");
}

TEST(Flags, WhatDoesNothingBesideALayoutIsRefused) {
  for (const std::vector<const char*>& flag : {std::vector<const char*>{"--bytes-per-block", "64K"},
                                               {"--block-tokens=16"},
                                               {"--speed", "2"},
                                               {"--ttl", "5m"},
                                               {"--pin", "hard"}}) {
    std::vector<const char*> words = {"replay", "f", "--layout", "qwen3-next"};
    words.insert(words.end(), flag.begin(), flag.end());
    EXPECT_THAT(Parse(words).err, HasSubstr("does nothing with --layout qwen3-next")) << flag[0];
    words[3] = "plain";
    EXPECT_EQ(Parse(words).code, std::nullopt) << flag[0];
  }
  EXPECT_EQ(Parse({"replay", "f", "--layout", "qwen3-next", "--speed", "max"}).code, std::nullopt);
  EXPECT_EQ(Parse({"lookup", "--tokens", "f", "--layout", "qwen3-next", "--block-tokens", "16"}).code, 2);
}

TEST(Flags, AListSaysWhatItsPiecesAre) {
  EXPECT_THAT(Parse({"sim", "eviction", "f", "--size", "5,10"}).err, HasSubstr("'5' is no share above 0"));
  EXPECT_THAT(Parse({"sim", "eviction", "f", "--ttl", "5"}).err, HasSubstr("'5' is no time"));
}

TEST(Flags, HelpOfACommandNamesTheFlagsOfAll) {
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"status", "--help"}, {"sim", "eviction", "--help"}})
    EXPECT_THAT(Parse(words).out, AllOf(HasSubstr("--json"), HasSubstr("--router")));
}

TEST(Flags, HelpIsNoError) {
  const Parsed p = Parse({"replay", "--help"});
  EXPECT_EQ(p.code, 0);
  EXPECT_THAT(p.out, HasSubstr("--bytes-per-block"));
  EXPECT_EQ(p.err, "");
}

TEST(Flags, ListNamesEveryCommand) {
  std::vector<std::string> names;
  for (const CommandFlags& command : ListFlags()) names.push_back(command.command);
  for (const char* command : {"", "up", "down", "status", "peers", "replay", "bench", "lookup", "calc memory",
                              "layout list", "layout from-config"}) {
    EXPECT_THAT(names, Contains(command));
  }
}

}  // namespace
}  // namespace cistern
