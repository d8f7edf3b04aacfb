#include "cache_node/disk/retention_book.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cistern {
namespace {

constexpr uint32_t kNow = 1'800'000'000;

BlockHash Block(uint64_t number) {
  BlockHash hash{};
  StoreLe<uint64_t>(hash.bytes.data() + 8, number);
  return hash;
}

class RetentionBookTest : public ::testing::Test {
 protected:
  RetentionBookTest() { Open(); }
  void Open() {
    book.reset();
    manifest = std::make_unique<Manifest>(MakeMemoryManifest(values), values, /*threaded=*/false);
    book = std::make_unique<RetentionBook>(*manifest, kNow, random);
  }
  bool Set(uint64_t number, uint32_t ttl_s, bool sliding = false) {
    return book->Set(Block(number), {.expires_unix_s = kNow + ttl_s, .ttl_s = ttl_s, .sliding = sliding});
  }
  std::optional<BlockHash> Take(uint32_t now) {
    uint64_t looks = UINT64_MAX;
    return book->TakeExpired(now, looks);
  }

  Random random{1};
  ManifestValues values;
  std::unique_ptr<Manifest> manifest;
  std::unique_ptr<RetentionBook> book;
};

TEST_F(RetentionBookTest, BlocksLeaveInTheOrderOfTheirEnds) {
  for (const uint32_t ttl : {300u, 100u, 200u}) EXPECT_TRUE(Set(ttl, ttl));
  Open();
  EXPECT_EQ(book->size(), 3u);
  EXPECT_EQ(Take(kNow + 99), std::nullopt);
  EXPECT_EQ(Take(kNow + 250), Block(100));
  EXPECT_EQ(Take(kNow + 250), Block(200));
  EXPECT_EQ(Take(kNow + 250), std::nullopt);
  EXPECT_FALSE(book->IsLive(Block(100), kNow));
  EXPECT_TRUE(book->IsLive(Block(300), kNow));
  EXPECT_EQ(values.size(), 1u);
}

// Ends that moved are no blocks that ended, but they are looked at all the same.
TEST_F(RetentionBookTest, ATurnLooksAtSoManyEndsAndNoMore) {
  constexpr uint64_t kBlocks = 50'000, kLooks = 128;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE(Set(i, 100, /*sliding=*/true));
    if (i % 10 != 0) book->Slide(Block(i), kNow + 200);
  }
  uint64_t turns = 0, ended = 0;
  for (bool more = true; more; ++turns) {
    uint64_t looks = kLooks;
    while (const auto block = book->TakeExpired(kNow + 150, looks)) ++ended;
    ASSERT_LE(looks, kLooks);
    more = looks == 0;
  }
  EXPECT_EQ(ended, kBlocks / 10);
  EXPECT_EQ(book->size(), kBlocks - ended);
  EXPECT_GE(turns, kBlocks / kLooks);
}

}  // namespace
}  // namespace cistern
