#include "client/core/verify.h"

#include <gtest/gtest.h>

#include <cstring>

namespace cistern {
namespace {

struct Case {
  ExpectedPart expected;
  PartDescriptor descriptor;
  PullResult pulled;
};

Case Good() {
  Case c;
  c.expected.block.hash.bytes[5] = 9;
  c.expected.block.fingerprint = 77;
  c.expected.coord = {0, 1, 2};
  c.expected.length = 4096;
  c.descriptor.result = PartResult::kOk;
  c.descriptor.block = c.expected.block;
  c.descriptor.coord = c.expected.coord;
  c.descriptor.length = 4096;
  c.descriptor.crc = 0x1234;
  c.descriptor.generation = 4;
  c.pulled.crc = 0x1234;
  c.pulled.trailer.generation = 4;
  c.pulled.trailer.fingerprint = 77;
  std::memcpy(c.pulled.trailer.hash, c.expected.block.hash.bytes.data(), 32);
  c.pulled.trailer.coord = c.expected.coord.Packed();
  c.pulled.trailer.length = 4096;
  c.pulled.trailer.crc = 0x1234;
  return c;
}
PartResult Pulled(const Case& c, Nanos now = 10, Nanos end = 10) {
  return VerifyPulled(c.expected, c.descriptor, c.pulled, now, end);
}

TEST(Verify, SaysOkWhenEverythingAgrees) {
  EXPECT_EQ(Pulled(Good()), PartResult::kOk);
  EXPECT_EQ(VerifyInline(Good().expected, Good().descriptor, 0x1234), PartResult::kOk);
}

TEST(Verify, RefusesEachFieldThatDiffers) {
  struct Row {
    const char* what;
    void (*spoil)(Case&);
    PartResult want;
  };
  const Row rows[] = {
      {"descriptor result", [](Case& c) { c.descriptor.result = PartResult::kMiss; }, PartResult::kMiss},
      {"descriptor hash", [](Case& c) { c.descriptor.block.hash.bytes[31] ^= 1; }, PartResult::kCorrupt},
      {"descriptor fingerprint", [](Case& c) { c.descriptor.block.fingerprint ^= 1; }, PartResult::kCorrupt},
      {"descriptor coord", [](Case& c) { c.descriptor.coord.slice = 3; }, PartResult::kCorrupt},
      {"descriptor length", [](Case& c) { c.descriptor.length = 4095; }, PartResult::kLayout},
      {"descriptor generation odd",
       [](Case& c) { c.descriptor.generation = c.pulled.trailer.generation = 5; }, PartResult::kStale},
      {"pull failed", [](Case& c) { c.pulled.result = PartResult::kPeerGone; }, PartResult::kPeerGone},
      {"trailer generation", [](Case& c) { c.pulled.trailer.generation = 6; }, PartResult::kStale},
      {"trailer being written", [](Case& c) { c.pulled.trailer.generation = 5; }, PartResult::kStale},
      {"trailer hash", [](Case& c) { c.pulled.trailer.hash[0] ^= 1; }, PartResult::kCorrupt},
      {"trailer fingerprint", [](Case& c) { c.pulled.trailer.fingerprint ^= 1; }, PartResult::kCorrupt},
      {"trailer coord", [](Case& c) { c.pulled.trailer.coord ^= 1; }, PartResult::kCorrupt},
      {"trailer length", [](Case& c) { c.pulled.trailer.length ^= 1; }, PartResult::kCorrupt},
      {"trailer crc", [](Case& c) { c.pulled.trailer.crc ^= 1; }, PartResult::kCorrupt},
      {"bytes", [](Case& c) { c.pulled.crc ^= 1; }, PartResult::kCorrupt},
  };
  for (const Row& row : rows) {
    Case c = Good();
    row.spoil(c);
    EXPECT_EQ(Pulled(c), row.want) << row.what;
  }
}

TEST(Verify, F17_ALateReadFailsWhateverItsBytes) {
  EXPECT_EQ(Pulled(Good(), 11, 10), PartResult::kLeaseExpired);
  Case recycled = Good();
  recycled.pulled.trailer.generation = 8;
  EXPECT_EQ(Pulled(recycled, 11, 10), PartResult::kLeaseExpired);
}

TEST(Verify, InlineBytesNeedTheDescribedCrc) {
  EXPECT_EQ(VerifyInline(Good().expected, Good().descriptor, 0x1235), PartResult::kCorrupt);
}

TEST(Verify, OkIsBestAndCorruptIsWorst) {
  for (int i = 1; i <= kPartResultMax; ++i) {
    const auto r = static_cast<PartResult>(i);
    EXPECT_EQ(WorseOf(PartResult::kOk, r), r);
    EXPECT_EQ(WorseOf(PartResult::kCorrupt, r), PartResult::kCorrupt);
    for (int j = 0; j < i; ++j) EXPECT_NE(Badness(r), Badness(static_cast<PartResult>(j)));
  }
}

}  // namespace
}  // namespace cistern
