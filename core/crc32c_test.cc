#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "core/copy_crc_vector.h"
#include "core/random.h"

namespace cistern {
namespace {

// The definition, one bit at a time; shares nothing with what it checks.
uint32_t BitwiseCrc32c(uint32_t crc, const std::byte* data, size_t bytes) {
  crc = ~crc;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= std::to_integer<uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::vector<std::byte> RandomBytes(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random.Next());
  return out;
}

using CopyFunction = uint32_t (*)(void*, const void*, size_t, uint32_t, const void*);
struct Path {
  const char* name;
  CopyFunction copy;
  bool (*is_supported)();
};
bool Always() { return true; }
const std::array<Path, 6> kPaths = {{{"chosen", CopyCrc32c, Always},
                                     {"portable", CopyCrc32cPortable, Always},
                                     {"avx512_streaming", kAvx512Crc.copy_streaming, kAvx512Crc.is_supported},
                                     {"avx512_cached", kAvx512Crc.copy_cached, kAvx512Crc.is_supported},
                                     {"avx2_streaming", kAvx2Crc.copy_streaming, kAvx2Crc.is_supported},
                                     {"avx2_cached", kAvx2Crc.copy_cached, kAvx2Crc.is_supported}}};

class CopyCrc : public ::testing::TestWithParam<Path> {
 protected:
  void SetUp() override {
    if (!GetParam().is_supported()) GTEST_SKIP() << "this CPU lacks it";
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, CopyCrc, ::testing::ValuesIn(kPaths),
                         [](const auto& path) { return std::string(path.param.name); });

constexpr std::byte kGuard{0xa5};

// Copies between the given misalignments and checks bytes, checksum and that nothing beside the range was
// written.
void CheckCopy(const Path& path, const std::vector<std::byte>& source, size_t from_at, size_t to_at,
               size_t bytes, uint32_t crc, uint32_t expected) {
  static std::vector<std::byte> room;
  room.assign(bytes + 256, kGuard);
  const size_t align = -reinterpret_cast<uintptr_t>(room.data()) % 64;
  std::byte* to = room.data() + align + to_at;
  // What is read next is a hint: nothing may be there.
  const void* next = bytes % 2 == 0 ? nullptr : reinterpret_cast<const void*>(uintptr_t{1} << 60);
  ASSERT_EQ(path.copy(to, source.data() + from_at, bytes, crc, next), expected)
      << path.name << " bytes " << bytes << " from +" << from_at << " to +" << to_at;
  ASSERT_TRUE(std::equal(to, to + bytes, source.data() + from_at)) << path.name << " bytes " << bytes;
  const auto is_guard = [](std::byte b) { return b == kGuard; };
  ASSERT_TRUE(std::all_of(room.data(), to, is_guard)) << path.name << " wrote in front of " << bytes;
  ASSERT_TRUE(std::all_of(to + bytes, room.data() + room.size(), is_guard))
      << path.name << " wrote behind " << bytes;
}

TEST(Crc32c, MatchesPublishedVectors) {
  // RFC 3720 appendix B.4.
  const std::array<uint8_t, 32> zeros{};
  std::array<uint8_t, 32> ones, up;
  ones.fill(0xff);
  for (size_t i = 0; i < up.size(); ++i) up[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(Crc32c(zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(ones.data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(up.data(), 32), 0x46dd794eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEverySize) {
  const std::vector<std::byte> data = RandomBytes(1100, 1);
  for (size_t bytes = 0; bytes <= 1024; ++bytes) {
    ASSERT_EQ(Crc32c(data.data() + bytes % 64, bytes), BitwiseCrc32c(0, data.data() + bytes % 64, bytes))
        << bytes;
  }
}

TEST(Crc32c, ExtendEqualsTheWholeAtEveryCut) {
  const std::vector<std::byte> data = RandomBytes(300, 2);
  const uint32_t whole = Crc32c(data.data(), data.size());
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    ASSERT_EQ(Crc32cExtend(Crc32c(data.data(), cut), data.data() + cut, data.size() - cut), whole) << cut;
  }
}

TEST(Crc32c, JoinsWhatWasCheckedApart) {
  Random random(20331);
  for (const size_t first : {0u, 1u, 5u, 4096u, 65536u}) {
    for (const size_t second : {0u, 1u, 63u, 4097u, 131072u}) {
      std::vector<std::byte> bytes(first + second);
      for (std::byte& one : bytes) one = static_cast<std::byte>(random.Next());
      EXPECT_EQ(Crc32cJoin(Crc32c(bytes.data(), first), Crc32c(bytes.data() + first, second), second),
                Crc32c(bytes.data(), bytes.size()))
          << first << " + " << second;
    }
  }
}

TEST(Crc32c, ExtendByNothingChangesNothing) { EXPECT_EQ(Crc32cExtend(0x12345678, nullptr, 0), 0x12345678u); }

TEST_P(CopyCrc, CopiesAndSumsEverySizeAtEveryAlignment) {
  const std::vector<std::byte> source = RandomBytes(1024 + 128, 3);
  for (size_t bytes = 0; bytes <= 1024; ++bytes) {
    // Every destination alignment for each size, the source's rotating; sizes around whole lines get all
    // pairs.
    const bool all_pairs = bytes % 64 <= 1 && bytes <= 320;
    for (size_t to_at = 0; to_at < 64; ++to_at) {
      for (size_t i = 0; i < (all_pairs ? 64 : 1); ++i) {
        const size_t from_at = (to_at * 7 + bytes + i) % 64;
        const uint32_t expected = Crc32cExtend(0, source.data() + from_at, bytes);
        CheckCopy(GetParam(), source, from_at, to_at, bytes, 0, expected);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CopyCrc, EqualsTheBitwiseDefinition) {
  const std::vector<std::byte> source = RandomBytes(1100, 4);
  for (size_t bytes = 0; bytes <= 1024; ++bytes) {
    const uint32_t start = static_cast<uint32_t>(bytes * 2654435761u);
    CheckCopy(GetParam(), source, bytes % 61, bytes % 53, bytes, start,
              BitwiseCrc32c(start, source.data() + bytes % 61, bytes));
    if (HasFatalFailure()) return;
  }
}

TEST_P(CopyCrc, CopiesLargeOnesAtRandomPlaces) {
  constexpr uint64_t kSeed = 20260301;
  RecordProperty("seed", static_cast<int>(kSeed));
  Random random(kSeed);
  const std::vector<std::byte> source = RandomBytes((4u << 20) + 4096, kSeed);
  // Borders of the threshold and of the portable piece, then anything.
  std::vector<size_t> sizes = {4095, 4096, 4097, 32767, 32768, 32769, 65536, 65537, (1u << 20) + 1, 4u << 20};
  for (int i = 0; i < 60; ++i) sizes.push_back(random.Below(200'000));
  for (const size_t bytes : sizes) {
    const size_t from_at = random.Below(64), to_at = random.Below(64);
    const auto start = static_cast<uint32_t>(random.Next());
    CheckCopy(GetParam(), source, from_at, to_at, bytes, start,
              Crc32cExtend(start, source.data() + from_at, bytes));
    if (HasFatalFailure()) FAIL() << "seed " << kSeed;
  }
}

TEST_P(CopyCrc, ChainsOverPieces) {
  constexpr uint64_t kSeed = 5;
  Random random(kSeed);
  const std::vector<std::byte> source = RandomBytes(1u << 20, kSeed);
  std::vector<std::byte> to(source.size());
  uint32_t crc = 0;
  for (size_t at = 0; at < source.size();) {
    const size_t bytes = std::min<size_t>(random.Below(70'000), source.size() - at);
    crc = GetParam().copy(to.data() + at, source.data() + at, bytes, crc, nullptr);
    at += bytes;
  }
  EXPECT_EQ(crc, Crc32c(source.data(), source.size())) << "seed " << kSeed;
  EXPECT_EQ(to, source);
}

TEST_P(CopyCrc, SeesEveryFlippedBit) {
  std::vector<std::byte> source = RandomBytes(1024, 6);
  std::vector<std::byte> to(source.size());
  const uint32_t whole = Crc32c(source.data(), source.size());
  for (size_t bit = 0; bit < source.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    source[bit / 8] ^= mask;
    ASSERT_NE(GetParam().copy(to.data(), source.data(), source.size(), 0, nullptr), whole) << "bit " << bit;
    source[bit / 8] ^= mask;
  }
}

#if !defined(__SANITIZE_THREAD__)
// The race is the point: a writer turns the source over while it is copied. The checksum must be that of what
// arrived.
TEST_P(CopyCrc, SumsWhatItStoredWhileTheSourceChanges) {
  std::vector<std::byte> source(96u << 10), to(source.size());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    volatile std::byte* at = source.data();
    for (uint8_t value = 0; !stop.load(std::memory_order_relaxed); ++value) {
      for (size_t i = value % 64; i < source.size(); i += 64) at[i] = static_cast<std::byte>(value);
    }
  });
  // Until the source was seen changing often enough, with an end for a machine that gives the writer no core.
  int wrong = 0, changes = 0;
  uint32_t last = 0;
  for (int i = 0; i < 40'000 && changes < 300; ++i) {
    const uint32_t crc = GetParam().copy(to.data(), source.data(), source.size(), 0, nullptr);
    wrong += crc != Crc32c(to.data(), to.size());
    changes += crc != last;
    last = crc;
  }
  stop = true;
  writer.join();
  EXPECT_GT(changes, 1);
  EXPECT_EQ(wrong, 0);
}
#endif

TEST(CopyCrcChoice, NamesThePathThatTheCpuHas) {
  const char* best = kAvx512Crc.is_supported() ? kAvx512Crc.name
                     : kAvx2Crc.is_supported() ? kAvx2Crc.name
                                               : "isa-l";
  EXPECT_STREQ(CopyCrc32cName(), best);
}

}  // namespace
}  // namespace cistern
