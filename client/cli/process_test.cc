#include "client/cli/process.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "client/cli/cluster_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    std::string pattern = testing::TempDir() + "cistern-cli-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    CaptureEnvironment();
  }
  ~ProcessTest() override { std::filesystem::remove_all(dir_); }
  absl::StatusOr<ProcessId> Shell(const std::string& script) {
    return Spawn({.program = "/bin/sh", .args = {"-c", script}, .log = dir_ + "/log"});
  }
  std::string dir_;
};

TEST_F(ProcessTest, SpawnsASessionOfItsOwnThatEndsOnSigterm) {
  const absl::StatusOr<ProcessId> process = Shell("while :; do sleep 1; done");
  ASSERT_TRUE(process.ok());
  EXPECT_TRUE(IsAlive(*process));
  EXPECT_EQ(getsid(process->pid), process->pid);
  EXPECT_THAT(EndProcesses({*process}, 5000), ElementsAre("ended"));
  EXPECT_FALSE(IsAlive(*process));
}

TEST_F(ProcessTest, KillsWhatIgnoresSigterm) {
  const absl::StatusOr<ProcessId> process = Shell("trap '' TERM; echo ready; while :; do sleep 1; done");
  ASSERT_TRUE(process.ok());
  while (LastLine(dir_ + "/log", 0) != "ready") sched_yield();
  EXPECT_THAT(EndProcesses({*process}, 50), ElementsAre("killed"));
  EXPECT_FALSE(IsAlive(*process));
}

TEST_F(ProcessTest, NeverSignalsAnotherProcessWithTheSameNumber) {
  const absl::StatusOr<ProcessId> process = Shell("while :; do sleep 1; done");
  ASSERT_TRUE(process.ok());
  ProcessId other = *process;
  other.start_ticks += 1;  // As if the number had been given again.
  EXPECT_THAT(EndProcesses({other, ProcessId{}}, 50), ElementsAre("gone", "gone"));
  EXPECT_TRUE(IsAlive(*process));
  EndProcesses({*process}, 5000);
}

// No descriptor can be opened while one of these lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(ProcessTest, AChildIsEndedWithoutADescriptorLeft) {
  const absl::StatusOr<ProcessId> process = Shell("while :; do sleep 1; done");
  ASSERT_TRUE(process.ok());
  {
    const NoDescriptors none;
    EXPECT_TRUE(IsAlive(*process));
    EXPECT_THAT(EndProcesses({*process}, 5000), ElementsAre("ended"));
  }
  EXPECT_FALSE(IsAlive(*process));
}

TEST_F(ProcessTest, WhatCannotBeReadIsNeitherGoneNorSignalled) {
  const ProcessId self{getpid(), 1};
  const NoDescriptors none;
  EXPECT_TRUE(IsAlive(self));
  EXPECT_THAT(EndProcesses({self}, 5000), ElementsAre("unknown"));
}

TEST_F(ProcessTest, TellsHowAChildEndedAndWhatItSaidLast) {
  const absl::StatusOr<ProcessId> process = Shell("echo first; echo last >&2; exit 2");
  ASSERT_TRUE(process.ok());
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(process->pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(TryReap(process->pid), "exit 2");
  EXPECT_EQ(LastLine(dir_ + "/log", 0), "last");
  EXPECT_EQ(LastLine(dir_ + "/log", FileBytes(dir_ + "/log")), "");
}

TEST_F(ProcessTest, AMissingProgramIsAnErrorWithItsPath) {
  const absl::Status status = Spawn({.program = "/no/such", .args = {}, .log = dir_ + "/log"}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such"));
}

TEST_F(ProcessTest, FolderKeepsSettingsAndProcesses) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->Load().ok());
  EXPECT_EQ(*folder->Load(), std::nullopt);
  ClusterSettings settings{.router = "127.0.0.1:1",
                           .nodes = 3,
                           .shards = 2,
                           .ram_bytes = 5,
                           .nvme_bytes = 6,
                           .nvme_mode = "on-demotion",
                           .hbm_bytes = 9,
                           .hbm_device = "host",
                           .transport = "map",
                           .fabric = "127.0.0.1:0",
                           .fabric_transports = "tcp",
                           .fabric_devices = "lo",
                           .require_rdma = true,
                           .policy = "lru",
                           .addresses = {{"node-1", "127.0.0.1:2"}}};
  ASSERT_TRUE(folder->Save(settings).ok());
  EXPECT_EQ(**folder->Load(), settings);
  ASSERT_TRUE(folder->Record("node-1", {7, 8}).ok());
  EXPECT_EQ(folder->Recorded("node-1"), (ProcessId{7, 8}));
  EXPECT_THAT(folder->RecordedNames(), ElementsAre("node-1"));
  folder->Forget("node-1");
  EXPECT_EQ(folder->Recorded("node-1"), std::nullopt);
}

TEST_F(ProcessTest, FolderIsHeldByOneAtATimeAndKeyStaysTheSame) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(folder.ok());
  EXPECT_THAT(std::string(ClusterFolder::Create(dir_ + "/c").status().message()), HasSubstr("at work"));
  const std::string key = *folder->KeyFile();
  std::ifstream first(key);
  const std::string text((std::istreambuf_iterator<char>(first)), std::istreambuf_iterator<char>());
  EXPECT_EQ(std::filesystem::status(key).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  folder->Unlock();
  absl::StatusOr<ClusterFolder> again = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(again.ok());
  std::ifstream second(*again->KeyFile());
  EXPECT_EQ(text, std::string((std::istreambuf_iterator<char>(second)), std::istreambuf_iterator<char>()));
}

// With another key nothing on disk could be found again.
TEST_F(ProcessTest, ALostKeyIsNotReplacedOnceSomethingWasStoredUnderIt) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->KeyFile().ok());
  std::filesystem::remove(dir_ + "/c/cluster.key");
  EXPECT_TRUE(folder->KeyFile().ok());  // Nothing yet.
  for (const std::string& at : {folder->RouterState() + "/state", folder->NodeData("node-1")}) {
    std::filesystem::create_directories(at);
    std::filesystem::remove(dir_ + "/c/cluster.key");
    EXPECT_THAT(std::string(folder->KeyFile().status().message()), HasSubstr("cluster.key is missing")) << at;
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/c/cluster.key"));
    std::filesystem::remove_all(at);
  }
}

TEST_F(ProcessTest, SettingsOutOfRangeAreNamed) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(folder.ok());
  for (const char* text :
       {R"({"router": "127.0.0.1:1", "nodes": 4000000000})", R"({"router": "127.0.0.1:1", "nodes": 0})",
        R"({"router": "127.0.0.1:1", "nodes": -1})", R"({"router": "127.0.0.1:1", "nodes": 4294967298})",
        R"({"router": "127.0.0.1:1", "nodes": 1.5})",
        R"({"router": "127.0.0.1:1", "nodes": 1, "shards": 65})"}) {
    std::ofstream(dir_ + "/c/cluster.json") << text;
    EXPECT_THAT(std::string(folder->Load().status().message()),
                HasSubstr("cluster.json is damaged or out of range"))
        << text;
  }
}

TEST_F(ProcessTest, F65_DamagedSettingsAreNamedNotThrown) {
  absl::StatusOr<ClusterFolder> folder = ClusterFolder::Create(dir_ + "/c");
  ASSERT_TRUE(folder.ok());
  for (const char* text : {"", "{", "[]", "{\"router\": 7}", "{\"router\": \"\"}"}) {
    std::ofstream(dir_ + "/c/cluster.json") << text;
    EXPECT_THAT(std::string(folder->Load().status().message()),
                HasSubstr("cluster.json is damaged or out of range"))
        << text;
  }
  EXPECT_THAT(std::string(ClusterFolder::Open(dir_ + "/none").status().message()), HasSubstr("no cluster"));
}

}  // namespace
}  // namespace cistern
