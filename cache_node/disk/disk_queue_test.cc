#include "cache_node/disk/disk_queue.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "cache_node/disk/disk_memory.h"
#include "cache_node/disk/memory_disk.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20262;
constexpr uint32_t kBytes = 256 << 10;

struct Fixture : ::testing::Test {
  Fixture() {
    queue.Submit({.kind = DiskRequest::Kind::kCreate, .file = 1, .bytes = 1 << 20},
                 [](int error) { ASSERT_EQ(error, 0); });
    Drain();
  }
  void Drain() {
    for (int i = 0; i < 10'000 && queue.open() > 0; ++i) queue.Poll();
    ASSERT_EQ(queue.open(), 0u);
  }
  Random random{kSeed};
  std::shared_ptr<MemoryFiles> files = std::make_shared<MemoryFiles>();
  MemoryDisk disk{files, random};
  DiskQueue queue{disk};
  DiskMemory memory = *DiskMemory::Create(2 * kBytes);
};

// F40: reads and writes that move less than asked for are gone on with, however often.
TEST_F(Fixture, F40_ShortTransfersAreContinued) {
  disk.faults.short_io = 0.5;
  disk.faults.delay = 0.3;
  for (uint32_t i = 0; i < kBytes; ++i) memory.data()[i] = static_cast<std::byte>(random.Next());
  for (int round = 0; round < 50; ++round) {
    int written = -1, read = -1;
    queue.Submit({.kind = DiskRequest::Kind::kWrite,
                  .file = 1,
                  .offset = 8192,
                  .data = memory.data(),
                  .bytes = kBytes},
                 [&](int error) { written = error; });
    Drain();
    std::fill_n(memory.data() + kBytes, kBytes, std::byte{0});
    queue.Submit({.kind = DiskRequest::Kind::kRead,
                  .file = 1,
                  .offset = 8192,
                  .data = memory.data() + kBytes,
                  .bytes = kBytes},
                 [&](int error) { read = error; });
    Drain();
    ASSERT_EQ(written, 0);
    ASSERT_EQ(read, 0);
    ASSERT_TRUE(std::equal(memory.data(), memory.data() + kBytes, memory.data() + kBytes))
        << "round " << round;
  }
  EXPECT_GT(disk.requests, 150u);
}

TEST_F(Fixture, KeepsWhatTheDiskHasNoPlaceForAndEndsEachOnce) {
  int ended = 0;
  for (uint32_t i = 0; i < 4 * kDiskDepthMax; ++i) {
    queue.Submit({.kind = DiskRequest::Kind::kRead,
                  .file = 1,
                  .offset = 0,
                  .data = memory.data(),
                  .bytes = kDiskAlign},
                 [&](int error) {
                   EXPECT_EQ(error, 0);
                   ++ended;
                 });
  }
  Drain();
  EXPECT_EQ(ended, static_cast<int>(4 * kDiskDepthMax));
}

TEST_F(Fixture, TellsErrors) {
  disk.faults.reads_fail = true;
  int error = 0;
  queue.Submit(
      {.kind = DiskRequest::Kind::kRead, .file = 1, .offset = 0, .data = memory.data(), .bytes = kDiskAlign},
      [&](int e) { error = e; });
  Drain();
  EXPECT_EQ(error, EIO);
}

}  // namespace
}  // namespace cistern
