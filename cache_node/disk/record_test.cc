#include "cache_node/disk/record.h"

#include <gtest/gtest.h>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20261;

RecordHeader Sample(Random& random) {
  RecordHeader header;
  header.extent = static_cast<uint32_t>(random.Below(100));
  header.page = 1 + static_cast<uint32_t>(random.Below(1000));
  header.use = {.life = random.Next(), .nonce = random.Next()};
  for (uint8_t& byte : header.block.hash.bytes) byte = static_cast<uint8_t>(random.Next());
  header.block.fingerprint = random.Next();
  header.depth = 17;
  header.tail = TailMark::Unpack(static_cast<uint32_t>(random.Next()));
  for (uint32_t i = 0; i < 5; ++i) {
    header.parts.push_back({.coord = PartCoord::Unpack(i),
                            .at = RoundUpTo(header.PayloadBytes(), kPartAlign),
                            .length = 1 + static_cast<uint32_t>(random.Below(9000)),
                            .crc = static_cast<uint32_t>(random.Next())});
  }
  return header;
}

TEST(Record, ComesBackAsItWas) {
  Random random(kSeed);
  std::vector<std::byte> page(kPageBytes);
  for (int round = 0; round < 100; ++round) {
    const RecordHeader header = Sample(random);
    EncodeRecordHeader(header, page.data());
    const auto back = DecodeRecordHeader(page.data());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->block, header.block);
    EXPECT_EQ(back->use, header.use);
    EXPECT_EQ(back->tail, header.tail);
    EXPECT_EQ(back->RecordBytes(), header.RecordBytes());
    EXPECT_EQ(back->parts.size(), header.parts.size());
    EXPECT_EQ(back->parts[4].crc, header.parts[4].crc);
  }
}

// Any one flipped bit of any page is found (F37).
TEST(Record, F37_EveryFlippedBitOfAPageIsRefused) {
  Random random(kSeed);
  std::vector<std::byte> pages[3];
  for (auto& page : pages) page.resize(kPageBytes);
  EncodeExtentHeader({.extent = 3, .use = {.life = 9, .nonce = 10}}, pages[0].data());
  EncodeRecordHeader(Sample(random), pages[1].data());
  EncodeFooter({.extent = 3, .use = {.life = 9, .nonce = 10}, .records = 0, .data_end = kPageBytes}, {},
               pages[2].data());
  ASSERT_TRUE(DecodeExtentHeader(pages[0].data()).ok() && DecodeFooterTrailer(pages[2].data()).ok());
  for (uint32_t bit = 0; bit < kPageBytes * 8; ++bit) {
    for (auto& page : pages) page[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(DecodeExtentHeader(pages[0].data()).ok()) << bit;
    EXPECT_FALSE(DecodeRecordHeader(pages[1].data()).ok()) << bit;
    EXPECT_FALSE(DecodeFooterTrailer(pages[2].data()).ok()) << bit;
    for (auto& page : pages) page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Record, FooterGivesItsEntriesBack) {
  Random random(kSeed);
  std::vector<FooterEntry> entries;
  RecordHeader header = Sample(random);
  AppendEntries(header, entries);
  header.page += header.RecordBytes() / kPageBytes;
  AppendEntries(header, entries);
  const uint32_t end = header.page * kPageBytes + header.RecordBytes();
  std::vector<std::byte> bytes(FooterBytes(static_cast<uint32_t>(entries.size())));
  EncodeFooter({.extent = 3, .use = {.life = 9, .nonce = 10}, .records = 2, .data_end = end}, entries,
               bytes.data());
  const auto trailer = DecodeFooterTrailer(bytes.data() + bytes.size() - kPageBytes);
  ASSERT_TRUE(trailer.ok()) << trailer.status();
  const auto back = DecodeFooterEntries(*trailer, bytes.data());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, entries);
  bytes[40] ^= std::byte{1};
  EXPECT_FALSE(DecodeFooterEntries(*trailer, bytes.data()).ok());
}

void SetFormat(std::byte* page, uint16_t format) {
  StoreLe<uint16_t>(page + 4, format);
  StoreLe<uint32_t>(page + kPageBytes - 4, Crc32c(page, kPageBytes - 4));
}

// What format 1 wrote is the same without tails; what comes after 2 is nothing to guess at.
TEST(Record, ReadsTheFormatBeforeAndNamesTheOneAfter) {
  Random random(kSeed);
  std::vector<std::byte> page(kPageBytes), first(kPageBytes);
  RecordHeader header = Sample(random);
  header.tail = {};
  EncodeRecordHeader(header, page.data());
  SetFormat(page.data(), 1);
  ASSERT_TRUE(DecodeRecordHeader(page.data()).ok());
  EXPECT_EQ(DecodeRecordHeader(page.data())->tail, TailMark{});
  EncodeExtentHeader({.extent = 3, .use = {.life = 9, .nonce = 10}}, first.data());
  SetFormat(first.data(), 3);
  const absl::Status refused = DecodeExtentHeader(first.data()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("format 3"), std::string::npos) << refused;
}

// F06: the whole key is in the header; keys that differ anywhere give headers that differ.
TEST(Record, F06_HoldsTheWholeKey) {
  Random random(kSeed);
  RecordHeader a = Sample(random), b = a;
  std::vector<std::byte> page(kPageBytes);
  for (size_t byte = 0; byte < a.block.hash.bytes.size(); ++byte) {
    b = a;
    b.block.hash.bytes[byte] ^= 1;
    EncodeRecordHeader(b, page.data());
    EXPECT_NE(DecodeRecordHeader(page.data())->block, a.block) << byte;
  }
}

// What a later version may write is no pin that this one knows.
TEST(Record, RetentionOfUnknownPinsIsNoneOfTheKnownOnes) {
  for (const uint16_t pin : {0, 1, 2}) {
    for (const uint16_t timed : {0, 1})
      EXPECT_EQ(KnownRetention(static_cast<uint16_t>(pin << 1 | timed)), pin << 1 | timed);
  }
  for (const uint16_t flags : {0x0a, 0x06, 0xfff2, 0x10}) EXPECT_EQ(KnownRetention(flags), 0) << flags;
  EXPECT_EQ(KnownRetention(0xffff), kRetentionTimed);
}

}  // namespace
}  // namespace cistern
