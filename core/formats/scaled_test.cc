#include "core/formats/scaled.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <string>
#include <vector>

#include "core/formats/scale_rule.h"
#include "core/formats/testing/values.h"

namespace cistern {
namespace {

// bf16 has 8 bits of precision: half a step of the result, as a share of it.
constexpr double kBf16Share = 0x1p-8;
double E4m3Bound(double value, double scale) {
  const double codec = std::max(std::fabs(value) * 0x1p-4, scale * 0x1p-10);
  return (codec + (std::fabs(value) + codec) * kBf16Share) * (1 + 0x1p-20);
}
double Int8Bound(double value, double scale) {
  return (scale / 2 + (std::fabs(value) + scale / 2) * kBf16Share) * (1 + 0x1p-15);
}

class Scaled : public ::testing::Test {
 protected:
  Bf16Span Odd(const std::vector<uint16_t>& values) {
    return {AtOddAddress(values, memory_), values.size() * 2};
  }
  const uint64_t seed_ = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_) + " (--gtest_random_seed)"};
  Random random_{seed_};
  std::vector<std::byte> memory_;
};

Bf16Out Bytes(std::vector<uint16_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * 2};
}

TEST_F(Scaled, E4m3PerTensorUsesTheLargestValueOrTheGivenScale) {
  const std::vector<uint16_t> in = CacheValues(random_, 1003);
  std::vector<uint8_t> codes(in.size());
  std::vector<uint16_t> out(in.size());
  const float scale = EncodeE4m3PerTensor(Odd(in), absl::MakeSpan(codes));
  EXPECT_EQ(scale, static_cast<float>(AmaxOfRange(in, 0, in.size())) / 448);
  for (const float s : {scale, 1.0F, 100 * scale}) {
    EncodeE4m3PerTensor(Odd(in), s, absl::MakeSpan(codes));
    DecodeE4m3PerTensor(codes, s, Bytes(out));
    for (size_t i = 0; i < in.size(); ++i) {
      const double value = std::clamp<double>(Bf16ToFloat(in[i]), -448.0 * s, 448.0 * s);
      ASSERT_LE(std::fabs(Bf16ToFloat(out[i]) - value), E4m3Bound(value, s));
    }
  }
}

TEST_F(Scaled, E4m3PerHeadScalesEachHeadByItself) {
  constexpr size_t kTokens = 9, kHeads = 3, kElements = 37;
  std::vector<uint16_t> in = CacheValues(random_, kTokens * kHeads * kElements);
  for (size_t i = 0; i < in.size(); ++i) {  // Head h is 100^h times larger.
    const size_t head = i / kElements % kHeads;
    in[i] = FloatToBf16(Bf16ToFloat(in[i]) * static_cast<float>(std::pow(100, head)));
  }
  std::vector<uint8_t> codes(in.size());
  std::vector<float> scales(kHeads);
  std::vector<uint16_t> out(in.size());
  EncodeE4m3PerHead(Odd(in), kElements, absl::MakeSpan(codes), absl::MakeSpan(scales));
  DecodeE4m3PerHead(codes, kElements, scales, Bytes(out));
  std::vector<double> amax(kHeads);
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t head = i / kElements % kHeads;
    amax[head] = std::max(amax[head], std::fabs(double{Bf16ToFloat(in[i])}));
    ASSERT_LE(std::fabs(Bf16ToFloat(out[i]) - Bf16ToFloat(in[i])),
              E4m3Bound(Bf16ToFloat(in[i]), scales[head]));
  }
  for (size_t head = 0; head < kHeads; ++head) EXPECT_EQ(scales[head], static_cast<float>(amax[head]) / 448);
}

TEST_F(Scaled, GroupsAreWithinTheirBoundsWithAnyLength) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{31}, size_t{128}, size_t{129}, size_t{1000}}) {
    for (const size_t group : {size_t{1}, size_t{32}, size_t{128}, size_t{5000}}) {
      const std::vector<uint16_t> in = CacheValues(random_, n);
      std::vector<float> scales((n + group - 1) / group);
      std::vector<uint16_t> out(n);
      std::vector<uint8_t> codes(n);
      EncodeE4m3Groups(Odd(in), group, absl::MakeSpan(codes), absl::MakeSpan(scales));
      DecodeE4m3Groups(codes, group, scales, Bytes(out));
      for (size_t i = 0; i < n; ++i)
        ASSERT_LE(std::fabs(Bf16ToFloat(out[i]) - Bf16ToFloat(in[i])),
                  E4m3Bound(Bf16ToFloat(in[i]), scales[i / group]));
      std::vector<int8_t> codes8(n);
      EncodeInt8Groups(Odd(in), group, absl::MakeSpan(codes8), absl::MakeSpan(scales));
      DecodeInt8Groups(codes8, group, scales, Bytes(out));
      for (size_t i = 0; i < n; ++i) {
        const size_t first = i / group * group;
        ASSERT_EQ(scales[i / group],
                  Int8Scale(static_cast<float>(AmaxOfRange(in, first, std::min(group, n - first)))));
        ASSERT_EQ(codes8[i], std::nearbyint(Bf16ToFloat(in[i]) / scales[i / group]));
        ASSERT_LE(std::fabs(Bf16ToFloat(out[i]) - Bf16ToFloat(in[i])),
                  Int8Bound(Bf16ToFloat(in[i]), scales[i / group]));
      }
    }
  }
}

TEST_F(Scaled, ZerosStayZerosAndTinyValuesDoNotBreakTheScale) {
  const std::vector<uint16_t> in = {0, 0x8000, 1, 0x8001};  // Zeros and the smallest subnormals.
  std::vector<uint8_t> codes(4);
  std::vector<float> scales(1);
  std::vector<uint16_t> out(4);
  EncodeE4m3Groups(Odd(in), 4, absl::MakeSpan(codes), absl::MakeSpan(scales));
  EXPECT_EQ(scales[0], FLT_MIN);
  DecodeE4m3Groups(codes, 4, scales, Bytes(out));
  for (const uint16_t value : out) EXPECT_LE(std::fabs(Bf16ToFloat(value)), FLT_MIN);
}

TEST_F(Scaled, NonFiniteValuesAreSeen) {
  std::vector<uint16_t> in = CacheValues(random_, 77);
  EXPECT_TRUE(AllFinite(Odd(in)));
  for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
    std::vector<uint16_t> now = in;
    now[random_.Below(now.size())] = bad;
    EXPECT_FALSE(AllFinite(Odd(now)));
  }
}

}  // namespace
}  // namespace cistern
