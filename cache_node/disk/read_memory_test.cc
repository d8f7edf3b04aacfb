#include "cache_node/disk/read_memory.h"

#include <vector>

#include "core/random.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

constexpr uint64_t kBytes = 24u << 20;

// F09: whatever is lent and comes back in any order, no two pieces have a byte in common.
TEST(ReadMemoryTest, F09_PiecesNeverOverlap) {
  const uint64_t seed = testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::vector<std::byte> bytes(kBytes);
  ReadMemory memory({.data = bytes.data(), .bytes = bytes.size()});
  struct Piece {
    std::byte* data;
    uint32_t bytes;
  };
  std::vector<Piece> lent;
  for (int round = 0; round < 20'000; ++round) {
    const auto size = static_cast<uint32_t>(1 + random.Below(kRecordBytesMax));
    std::byte* data = random.Below(3) == 0 ? nullptr : memory.Take(size);
    if (data != nullptr) {
      ASSERT_GE(data, bytes.data());
      ASSERT_LE(data + size, bytes.data() + bytes.size());
      for (const Piece& other : lent) {
        ASSERT_TRUE(data + size <= other.data || other.data + other.bytes <= data);
      }
      lent.push_back({data, size});
    } else if (!lent.empty()) {
      const size_t at = random.Below(lent.size());
      memory.Give(lent[at].data, lent[at].bytes);
      lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(memory.lent(), lent.size());
  }
}

TEST(ReadMemoryTest, SmallReadsAreManyAndNoneIsLentPastTheBound) {
  std::vector<std::byte> bytes(kBytes);
  ReadMemory memory({.data = bytes.data(), .bytes = bytes.size()});
  for (const uint32_t size : {4096u, (256u << 10) + 4096, (1u << 20) + 4096, kRecordBytesMax}) {
    std::vector<std::byte*> lent;
    while (std::byte* piece = memory.Take(size)) lent.push_back(piece);
    EXPECT_EQ(lent.size(), memory.RoomFor(size)) << size;
    EXPECT_LE(lent.size(), kReadsMax);
    for (const std::byte* piece : lent) memory.Give(piece, size);
  }
  EXPECT_EQ(memory.RoomFor((256u << 10) + 4096), kReadsMax);
  EXPECT_EQ(memory.RoomFor(kRecordBytesMax), 5u);
}

TEST(ReadMemoryTest, ALongReadGetsItsPlaceOnceAllCameBack) {
  std::vector<std::byte> bytes(kBytes);
  ReadMemory memory({.data = bytes.data(), .bytes = bytes.size()});
  std::vector<std::byte*> small;
  while (std::byte* piece = memory.Take(1u << 20)) small.push_back(piece);
  EXPECT_EQ(memory.Take(kRecordBytesMax), nullptr);
  for (const std::byte* piece : small) memory.Give(piece, 1u << 20);
  EXPECT_NE(memory.Take(kRecordBytesMax), nullptr);
}

}  // namespace
}  // namespace cistern
