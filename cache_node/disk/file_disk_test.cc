#include "cache_node/disk/file_disk.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "cache_node/disk/disk_memory.h"
#include "cache_node/disk/disk_queue.h"
#include "cache_node/disk/record.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20265;

struct Folder {
  Folder() {
    // lint: allow(machine-path) because the build folder may be on a file system without O_DIRECT.
    char name[] = "/tmp/cistern-disk-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

class FileDiskTest : public ::testing::TestWithParam<FileDiskOptions> {
 protected:
  void Drain(DiskQueue& queue) {
    for (int i = 0; i < 100'000'000 && queue.open() > 0; ++i) queue.Poll();
    ASSERT_EQ(queue.open(), 0u);
  }
  Folder folder;
};

TEST_P(FileDiskTest, WritesReadsSyncsCreatesAndRemoves) {
  auto disk = FileDisk::Open(folder.path + "/nvme", GetParam());
  ASSERT_TRUE(disk.ok()) << disk.status();
  std::cout << (*disk)->Describe() << "\n";
  DiskMemory memory = *DiskMemory::Create(2 << 20);
  (*disk)->RegisterMemory(memory.segment());
  DiskQueue queue(**disk);
  std::vector<int> errors;
  const auto note = [&](int error) { errors.push_back(error); };
  queue.Submit({.kind = DiskRequest::Kind::kCreate, .file = 7, .bytes = kExtentBytes}, note);
  Drain(queue);
  Random random(kSeed);
  for (size_t i = 0; i < 1 << 20; ++i) memory.data()[i] = static_cast<std::byte>(random.Next());
  for (uint64_t i = 0; i < 256; ++i) {
    queue.Submit({.kind = DiskRequest::Kind::kWrite,
                  .file = 7,
                  .offset = (255 - i) * 4096,
                  .data = memory.data() + i * 4096,
                  .bytes = 4096},
                 note);
  }
  Drain(queue);
  queue.Submit({.kind = DiskRequest::Kind::kSync, .file = 7}, note);
  Drain(queue);
  for (uint64_t i = 0; i < 256; ++i) {
    queue.Submit({.kind = DiskRequest::Kind::kRead,
                  .file = 7,
                  .offset = (255 - i) * 4096,
                  .data = memory.data() + (256 + i) * 4096,
                  .bytes = 4096},
                 note);
  }
  Drain(queue);
  EXPECT_EQ(errors, std::vector<int>(errors.size(), 0));
  EXPECT_TRUE(std::equal(memory.data(), memory.data() + (1 << 20), memory.data() + (1 << 20)));
  EXPECT_EQ(*(*disk)->List(), std::vector<FileId>{7});
  ASSERT_TRUE((*disk)->ReadNow(7, 0, memory.data() + (1 << 20), 4096).ok());
  EXPECT_TRUE(absl::IsOutOfRange((*disk)->ReadNow(7, kExtentBytes, memory.data(), 4096)));
  queue.Submit({.kind = DiskRequest::Kind::kRemove, .file = 7}, note);
  Drain(queue);
  EXPECT_TRUE((*disk)->List()->empty());
  errors.clear();
  queue.Submit(
      {.kind = DiskRequest::Kind::kRead, .file = 7, .offset = 0, .data = memory.data(), .bytes = 4096}, note);
  Drain(queue);
  EXPECT_EQ(errors, std::vector<int>{ENOENT});
}

// Once all is done, nothing wakes who sleeps on the disk.
TEST_P(FileDiskTest, LetsSleepWhenNothingIsOpen) {
  auto disk = FileDisk::Open(folder.path + "/nvme", GetParam());
  ASSERT_TRUE(disk.ok()) << disk.status();
  DiskQueue queue(**disk);
  DiskMemory memory = *DiskMemory::Create(4096);
  queue.Submit({.kind = DiskRequest::Kind::kCreate, .file = 1, .bytes = kExtentBytes}, [](int) {});
  Drain(queue);
  for (int i = 0; i < 50; ++i) {
    queue.Submit(
        {.kind = DiskRequest::Kind::kWrite, .file = 1, .offset = 0, .data = memory.data(), .bytes = 4096},
        [](int error) { EXPECT_EQ(error, 0); });
    Drain(queue);
    pollfd ended{.fd = (*disk)->WaitFd(), .events = POLLIN, .revents = 0};
    int polls = 0;
    while (::poll(&ended, 1, 0) != 0 && polls < 10'000) queue.Poll(), ++polls;
    ASSERT_LT(polls, 10'000) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FileDiskTest,
                         ::testing::Values(FileDiskOptions{.uring = true, .direct = true},
                                           FileDiskOptions{.uring = false, .direct = true},
                                           FileDiskOptions{.uring = true, .direct = false},
                                           FileDiskOptions{.uring = false, .direct = false}));

// S07: no link in the folder is followed, and no name but ours is a file of the log.
TEST(FileDisk, S07_LinksAndStrangeNamesAreNotFollowed) {
  const Folder folder;
  std::ofstream(folder.path + "/outside") << "secret";
  auto disk = FileDisk::Open(folder.path + "/nvme");
  ASSERT_TRUE(disk.ok());
  std::filesystem::create_symlink(folder.path + "/outside", folder.path + "/nvme/extent-00000001");
  std::ofstream(folder.path + "/nvme/extent-1") << "x";
  std::ofstream(folder.path + "/nvme/extent-000000022") << "x";
  EXPECT_EQ(*(*disk)->List(), std::vector<FileId>{1});
  DiskMemory memory = *DiskMemory::Create(4096);
  EXPECT_FALSE((*disk)->ReadNow(1, 0, memory.data(), 4096).ok());
  DiskQueue queue(**disk);
  int error = 0;
  queue.Submit({.kind = DiskRequest::Kind::kCreate, .file = 1, .bytes = kExtentBytes},
               [&](int e) { error = e; });
  for (int i = 0; i < 100'000'000 && queue.open() > 0; ++i) queue.Poll();
  EXPECT_NE(error, 0);
  EXPECT_EQ(std::filesystem::file_size(folder.path + "/outside"), 6u);
}

TEST(FileDisk, SaysWhyAFolderCannotBeUsed) {
  const Folder folder;
  std::ofstream(folder.path + "/file") << "x";
  const auto disk = FileDisk::Open(folder.path + "/file/nvme");
  ASSERT_FALSE(disk.ok());
  EXPECT_NE(std::string(disk.status().message()).find("file/nvme"), std::string::npos);
}

}  // namespace
}  // namespace cistern
