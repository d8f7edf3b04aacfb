#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

// lint: allow(room) because the file under test is a node's, written as nodes write it.
#include "cache_node/disk/id_file.h"
#include "client/cli/cluster_folder.h"
#include "client/cli/content.h"
#include "client/cli/output.h"
#include "client/cli/plain_layout.h"
#include "client/cli/samples.h"
#include "client/cli/tokens.h"
#include "core/process_start.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Content, PassesItsOwnBytesAtEverySize) {
  for (size_t bytes : {0, 1, 7, 8, 9, 4095, 4096, 4097, 40000}) {
    std::vector<std::byte> memory(bytes + 1);
    FillContent(42, memory.data() + 1, bytes);  // Odd address on purpose.
    EXPECT_EQ(FindWrongByte(42, memory.data() + 1, bytes), std::nullopt) << bytes;
  }
}

TEST(Content, FindsOneFlippedBitAnywhere) {
  constexpr uint64_t kSeed = 11;
  Random random(kSeed);
  std::vector<std::byte> memory(20003);
  FillContent(5, memory.data(), memory.size());
  for (int i = 0; i < 1000; ++i) {
    const size_t at = random.Below(memory.size());
    const auto bit = std::byte{static_cast<uint8_t>(1u << random.Below(8))};
    memory[at] ^= bit;
    EXPECT_EQ(FindWrongByte(5, memory.data(), memory.size()), at / 8 * 8)
        << "seed " << kSeed << " byte " << at;
    memory[at] ^= bit;
  }
}

TEST(Content, AnotherBlocksOrOffsetsBytesDoNotPass) {
  std::vector<std::byte> memory(8192);
  FillContent(ContentSeed(0, 1), memory.data(), memory.size());
  EXPECT_EQ(FindWrongByte(ContentSeed(0, 2), memory.data(), 4096), 0);
  EXPECT_EQ(FindWrongByte(ContentSeed(0, 1), memory.data() + 4096, 4096), 0);
  EXPECT_EQ(FindWrongByte(ContentSeed(0, 1), memory.data() + 8, 4096), 0);
}

TEST(Samples, PercentileIsTheNearestRank) {
  Samples samples;
  EXPECT_EQ(samples.Percentile(0.99), 0);
  for (int i = 100; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Median(), 50);
  EXPECT_EQ(samples.Percentile(0.99), 99);
  EXPECT_EQ(samples.Percentile(1), 100);
  EXPECT_EQ(samples.count(), 100);
  EXPECT_EQ(samples.sum(), 5050);
}

TEST(Tokens, ReadsListsAndJsonArrays) {
  EXPECT_THAT(*ParseTokens("1 2\n3,4\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*ParseTokens("[0, 4294967295]"), ElementsAre(0, 4294967295));
  EXPECT_TRUE(ParseTokens("")->empty());
}

TEST(Tokens, NamesTheFirstThatIsNoNumber) {
  EXPECT_THAT(std::string(ParseTokens("1 2 x3").status().message()), HasSubstr("token 3 ('x3')"));
  EXPECT_FALSE(ParseTokens("4294967296").ok());
  EXPECT_FALSE(ParseTokens("-1").ok());
}

TEST(Output, TableAlignsNumbersToTheRight) {
  EXPECT_EQ(FormatTable({{"name", "n"}, {"a", "7"}, {"bb", "123"}}), "name  n\na       7\nbb    123\n");
}

TEST(Output, F65_AnErrorIsOneLineAndTheSameAsAnObject) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  EXPECT_EQ(Fail(true, "first\nsecond\r\n"), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cistern: first; second\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{\"error\":\"first; second\"}\n");
}

TEST(Output, WhatIsNotTakenIsAnErrorOnce) {
  const int kept = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY);
  std::fflush(stdout);
  dup2(full, STDOUT_FILENO);
  testing::internal::CaptureStderr();
  Print("lost\n");
  EXPECT_EQ(Finish(kExitDone), kExitError);
  dup2(kept, STDOUT_FILENO);
  close(kept), close(full);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot write standard output: "));
  clearerr(stdout);
  EXPECT_EQ(Finish(kExitShort), kExitShort);
}

TEST(Output, NoFileGetsTheNumberOfAClosedStandardStream) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDIN_FILENO), close(STDOUT_FILENO), close(STDERR_FILENO);
    OccupyStandardStreams();
    const int file = open("/dev/zero", O_RDWR);
    _exit(file > STDERR_FILENO && write(STDOUT_FILENO, "x", 1) < 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(PlainLayout, TokensDependOnTheIdAlone) {
  std::vector<uint32_t> a, b, c;
  AppendBlockTokens(7, 16, a);
  AppendBlockTokens(8, 16, b);
  AppendBlockTokens(7, 16, b);
  AppendBlockTokens(uint64_t{1} << 32 | 7, 16, c);
  ASSERT_EQ(b.size(), 32);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin() + 16));
  EXPECT_FALSE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_NE(a, c);
}

// A wrong id would make a router that none of the nodes may join.
TEST(ClusterFolder, F37_TheNodesClusterIsReadPastADamagedLine) {
  const std::string dir = testing::TempDir() + "/cistern-cluster-" + std::to_string(getpid());
  const std::string data = dir + "/node-1/data";
  std::filesystem::create_directories(data);
  ClusterId cluster;
  cluster.bytes[0] = 0xab;
  ASSERT_TRUE(WriteClusterId(data, cluster).ok());
  std::fstream(data + "/cluster_id", std::ios::in | std::ios::out) << "cd";  // The first of its copies.
  const absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->ClusterOfNodes(), ToHex(cluster));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace cistern
