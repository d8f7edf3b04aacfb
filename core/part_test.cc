#include "core/part.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/hex.h"

namespace cistern {
namespace {

TEST(PartResult, EveryValueHasItsOwnNameAndACode) {
  std::set<std::string> names;
  for (int i = 0; i <= kPartResultMax; ++i) {
    const auto result = static_cast<PartResult>(i);
    names.insert(std::string(PartResultName(result)));
    EXPECT_EQ(PartResultCode(result) == absl::StatusCode::kOk, result == PartResult::kOk) << i;
    EXPECT_NE(PartResultCode(result), absl::StatusCode::kUnknown) << i;
  }
  EXPECT_EQ(names.size(), kPartResultMax + 1u);
  EXPECT_EQ(names.count("UNKNOWN"), 0u);
}

TEST(PartResult, WireValuesAreFixed) {
  EXPECT_EQ(PartResultName(static_cast<PartResult>(0)), "OK");
  EXPECT_EQ(PartResultName(static_cast<PartResult>(4)), "LEASE_EXPIRED");
  EXPECT_EQ(PartResultName(static_cast<PartResult>(9)), "EXISTS");
  EXPECT_EQ(PartResultName(static_cast<PartResult>(16)), "BREAKER_OPEN");
}

TEST(PartResult, OfANewerPeerIsAnUnknownMiss) {
  const auto unknown = static_cast<PartResult>(kPartResultMax + 1);
  EXPECT_EQ(PartResultName(unknown), "UNKNOWN");
  EXPECT_TRUE(CountsAsMiss(unknown));
  EXPECT_EQ(PartResultCode(unknown), absl::StatusCode::kUnknown);
}

TEST(PartResult, OnlyOkAndExistsAreNoMiss) {
  for (int i = 0; i <= kPartResultMax; ++i) {
    const auto result = static_cast<PartResult>(i);
    EXPECT_EQ(CountsAsMiss(result), result != PartResult::kOk && result != PartResult::kExists) << i;
  }
}

TEST(PartCoord, PacksEveryCornerWithoutLoss) {
  for (const uint32_t packed : {0u, 1u, 0xfffu, 0x1000u, 0xfff000u, 0x1000000u, 0xffffffffu}) {
    EXPECT_EQ(PartCoord::Unpack(packed).Packed(), packed);
  }
}

TEST(Ids, HexShowsAllOrTheFirstBytes) {
  LayoutId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(i * 17);
  EXPECT_EQ(ToHex(id), "00112233445566778899aabbccddeeff");
  EXPECT_EQ(ToHex(id, 3), "001122");
  EXPECT_EQ(ToHex(id, 99), ToHex(id));
}

TEST(Ids, HexComesBackInEitherCaseAndNothingElseIsTaken) {
  const auto id = IdFromHex<LayoutId>("00112233445566778899aabbCCDDEEFF");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(ToHex(*id), "00112233445566778899aabbccddeeff");
  for (const char* wrong : {"", "0011", "00112233445566778899aabbccddeef",
                            "00112233445566778899aabbccddeeff0", "00112233445566778899aabbccddeefg",
                            "0x112233445566778899aabbccddeeff", "00112233445566778899aabbccddee f"}) {
    EXPECT_FALSE(IdFromHex<LayoutId>(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace cistern
