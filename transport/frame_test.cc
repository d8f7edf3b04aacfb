#include "transport/frame.h"

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using Raw = std::array<std::byte, kFrameHeaderBytes>;

Raw Encoded(const FrameHeader& header) {
  Raw raw;
  EncodeFrameHeader(header, raw.data());
  return raw;
}
// Overwrites a field and makes the checksum right again.
template <typename T>
Raw With(Raw raw, size_t at, T value) {
  StoreLe(raw.data() + at, value);
  StoreLe<uint32_t>(raw.data() + 36, Crc32c(raw.data(), 36));
  return raw;
}
FrameHeader PlanReplyHeader() {
  FrameHeader header;
  header.type = FrameType::kPlanReply;
  header.flags = 0x0102;
  header.request_id = 0x1122334455667788;
  header.body_bytes = 1000;
  header.payload_bytes = kPayloadBytesMax;
  header.body_crc = 0xdeadbeef;
  return header;
}

TEST(Frame, HeaderComesBackAsItWasSent) {
  const FrameHeader sent = PlanReplyHeader();
  const Raw raw = Encoded(sent);
  EXPECT_EQ(LoadLe<uint32_t>(raw.data()), kFrameMagic);
  EXPECT_EQ(raw[5], std::byte{13});
  EXPECT_EQ(LoadLe<uint64_t>(raw.data() + 8), sent.request_id);
  EXPECT_EQ(LoadLe<uint64_t>(raw.data() + 24), kPayloadBytesMax);
  const absl::StatusOr<FrameHeader> seen = DecodeFrameHeader(raw);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->flags, sent.flags);
  EXPECT_EQ(seen->body_bytes, sent.body_bytes);
  EXPECT_EQ(seen->payload_bytes, sent.payload_bytes);
  EXPECT_EQ(seen->body_crc, sent.body_crc);
}

TEST(Frame, EveryFlippedBitIsRefused) {
  const Raw raw = Encoded(PlanReplyHeader());
  for (size_t bit = 0; bit < kFrameHeaderBytes * 8; ++bit) {
    Raw flipped = raw;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeFrameHeader(flipped).ok()) << bit;
  }
}

TEST(Frame, S13_LimitsAreCheckedOnTheHeader) {
  const Raw raw = Encoded(PlanReplyHeader());
  EXPECT_TRUE(DecodeFrameHeader(With<uint32_t>(raw, 16, kBodyBytesMax)).ok());
  EXPECT_TRUE(DecodeFrameHeader(With<uint32_t>(raw, 20, kFrameAlignBytes - 1)).ok());
  for (const Raw& bad :
       {With<uint32_t>(raw, 16, kBodyBytesMax + 1), With<uint32_t>(raw, 16, UINT32_MAX),
        With<uint64_t>(raw, 24, kPayloadBytesMax + 1), With<uint64_t>(raw, 24, uint64_t{1} << 40),
        With<uint64_t>(raw, 24, (uint64_t{1} << 32) + 1),  // F36
        With<uint8_t>(raw, 4, 0), With<uint8_t>(raw, 4, kWireVersionMax + 1), With<uint8_t>(raw, 5, 0),
        With<uint8_t>(raw, 5, 99), With<uint32_t>(raw, 20, kFrameAlignBytes),
        With<uint8_t>(raw, 5, static_cast<uint8_t>(FrameType::kLookup))}) {
    EXPECT_EQ(DecodeFrameHeader(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(DecodeFrameHeader(absl::MakeConstSpan(raw).first(39)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Frame, F61_AHelloOfAnotherVersionIsReadForItsRefusal) {
  FrameHeader header;
  header.type = FrameType::kHello;
  header.version = 9;
  const absl::StatusOr<FrameHeader> seen = DecodeFrameHeader(Encoded(header));
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->version, 9);
}

}  // namespace
}  // namespace cistern
