#include "cache_node/data_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

struct TempFolder {
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cistern-folder-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(DataFolder, KeepsItsIdsOverOpens) {
  TempFolder temp;
  const ClusterId cluster{.bytes = {1, 2, 3}};
  {
    auto folder = DataFolder::Open(temp.path + "/deep/node");
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(folder->node_id().empty());
    EXPECT_FALSE(folder->cluster().has_value());
    EXPECT_TRUE(folder->SetNodeId("node-3").ok());
    EXPECT_TRUE(folder->SetCluster(cluster).ok());
  }
  auto folder = DataFolder::Open(temp.path + "/deep/node");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->node_id(), "node-3");
  EXPECT_EQ(folder->cluster(), cluster);
  EXPECT_TRUE(folder->SetNodeId("node-3").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(folder->SetNodeId("node-4")));
  EXPECT_THAT(std::string(folder->SetNodeId("node-4").message()), HasSubstr("give --node-id node-3"));
  EXPECT_TRUE(absl::IsFailedPrecondition(folder->SetCluster(ClusterId{})));
}

// F37: most of an id's file may be damaged, and the folder still knows whose it is; a file of an older node
// reads too.
TEST(DataFolder, F37_IdsOutliveFlippedBytes) {
  TempFolder temp;
  {
    auto folder = DataFolder::Open(temp.path);
    ASSERT_TRUE(folder->SetNodeId("node-3").ok());
  }
  std::string text;
  std::getline(std::ifstream(temp.path + "/node_id"), text, '\0');
  for (size_t at = 3; at < text.size() * 3 / 4; at += 9) text[at] ^= 4;
  std::ofstream(temp.path + "/node_id") << text;
  auto folder = DataFolder::Open(temp.path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->node_id(), "node-3");
  for (size_t at = 3; at < text.size(); at += 5) text[at] ^= 8;
  std::ofstream(temp.path + "/cluster_id") << text;
  { const auto lock_goes = std::move(*folder); }
  EXPECT_THAT(std::string(DataFolder::Open(temp.path).status().message()),
              HasSubstr("damaged; remove the file"));
  std::ofstream(temp.path + "/cluster_id") << "01020000000000000000000000000000\n";
  EXPECT_TRUE(DataFolder::Open(temp.path)->cluster().has_value());
}

TEST(DataFolder, F34_ASecondOwnerIsToldThePidOfTheFirst) {
  TempFolder temp;
  auto first = DataFolder::Open(temp.path);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = DataFolder::Open(temp.path);
  ASSERT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("pid ", ::getpid())));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(temp.path));
}

TEST(DataFolder, F34_AfterKill9OfItsOwnerTheFolderOpensWithoutHandWork) {
  TempFolder temp;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto folder = DataFolder::Open(temp.path);
    const char said = folder.ok() ? 'y' : 'n';
    if (::write(ready[1], &said, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_FALSE(DataFolder::Open(temp.path).ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(DataFolder::Open(temp.path).ok());
}

// A process of several threads that was killed: its first thread is a zombie before the last lets go.
TEST(DataFolder, F34_WaitsForAnOwnerThatIsDying) {
  TempFolder temp;
  int ready[2], end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto folder = DataFolder::Open(temp.path);
    std::thread([&] {
      char go = 0;
      ::_exit(::read(end[0], &go, 1) == 1 ? 0 : 1);
    }).detach();
    const char said = folder.ok() ? 'y' : 'n';
    if (::write(ready[1], &said, 1) != 1) ::_exit(1);
    ::syscall(SYS_exit, 0);  // This thread alone.
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  const std::string stat = absl::StrCat("/proc/", child, "/stat");
  for (std::string text; text.find(") Z ") == std::string::npos;) std::getline(std::ifstream(stat), text);
  std::atomic<bool> begun{false}, ended{false};
  std::thread opener([&] {
    begun = true;
    const auto folder = DataFolder::Open(temp.path);
    EXPECT_TRUE(folder.ok()) << folder.status();
    ended = true;
  });
  while (!begun) {
  }
  EXPECT_FALSE(ended);
  EXPECT_EQ(::write(end[1], "x", 1), 1);
  opener.join();
  ::waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
}

// What the router takes as proof that the process before is gone: the same over starts, another of a copy.
TEST(DataFolder, ItsPlaceStaysAndACopyHasAnother) {
  TempFolder temp;
  std::string place;
  {
    auto folder = DataFolder::Open(temp.path + "/one");
    place = folder->place();
    EXPECT_NE(place, "");
    EXPECT_TRUE(folder->SetNodeId("node-3").ok());
  }
  std::filesystem::copy(temp.path + "/one", temp.path + "/two");
  EXPECT_EQ(DataFolder::Open(temp.path + "/one")->place(), place);
  auto copy = DataFolder::Open(temp.path + "/two");
  EXPECT_EQ(copy->node_id(), "node-3");
  EXPECT_NE(copy->place(), place);
}

TEST(DataFolder, NamesWhatIsDamagedOrCannotBeMade) {
  TempFolder temp;
  std::ofstream(temp.path + "/cluster_id") << "xyz\n";
  const auto damaged = DataFolder::Open(temp.path);
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("cluster_id"));
  std::ofstream(temp.path + "/cluster_id") << "";
  EXPECT_FALSE(DataFolder::Open(temp.path).ok());
  std::ofstream(temp.path + "/file") << "";
  const auto no_folder = DataFolder::Open(temp.path + "/file/sub");
  EXPECT_TRUE(absl::IsInvalidArgument(no_folder.status()));
  EXPECT_THAT(std::string(no_folder.status().message()), HasSubstr("--data-dir"));
}

}  // namespace
}  // namespace cistern
