#include "cache_node/disk/disk_memory.h"

#include <cstdint>
#include <utility>

#include "core/arena.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(DiskMemoryTest, LargeMemoryBeginsAtAHugePage) {
  constexpr size_t kBytes = 2 * kHugePageBytes + 4096;
  DiskMemory memory = *DiskMemory::Create(kBytes);
  EXPECT_EQ(memory.bytes(), kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHugePageBytes, 0u);
  memory.data()[0] = std::byte{1};
  memory.data()[kBytes - 1] = std::byte{2};
  const DiskMemory moved = std::move(memory);
  EXPECT_EQ(moved.data()[0], std::byte{1});
  EXPECT_EQ(moved.data()[kBytes - 1], std::byte{2});
}

TEST(DiskMemoryTest, SmallMemoryIsPageAlignedAndNoMoreThanAskedFor) {
  const DiskMemory memory = *DiskMemory::Create(4096);
  EXPECT_EQ(memory.bytes(), 4096u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
  memory.data()[4095] = std::byte{1};
}

TEST(DiskMemoryTest, MoreThanThereIsSaysSo) {
  const auto memory = DiskMemory::Create(size_t{1} << 62);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cistern
