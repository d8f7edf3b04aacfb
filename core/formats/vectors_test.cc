// Small exact vectors for quantised caches, made with NumPy and checked by hand: what kernels and engines
// must agree on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/formats/e2m1.h"
#include "core/formats/e4m3.h"
#include "core/formats/fp4.h"
#include "core/formats/index_keys.h"
#include "core/formats/int4.h"
#include "core/formats/mla_rows.h"
#include "core/formats/scale_rule.h"

namespace cistern {
namespace {

using ::testing::ElementsAreArray;

TEST(FormatVectors, E4m3fnRneSaturating) {
  constexpr std::array<float, 10> kX = {0.0F,   1.0F,   -1.0F,   0.0599999987F, 3.2999999523F,
                                        447.0F, 449.0F, -600.0F, 0.001953125F,  0.0009765625F};
  constexpr std::array<uint8_t, 10> kCodes = {0x00, 0x38, 0xb8, 0x17, 0x45, 0x7e, 0x7e, 0xfe, 0x01, 0x00};
  constexpr std::array<float, 10> kValues = {0, 1, -1, 0.05859375F, 3.25F, 448, 448, -448, 0.001953125F, 0};
  for (size_t i = 0; i < kX.size(); ++i) {
    EXPECT_EQ(FloatToE4m3(kX[i]), kCodes[i]) << kX[i];
    EXPECT_EQ(E4m3ToFloat(kCodes[i]), kValues[i]);
  }
}

constexpr std::array<float, 32> kMxfp4X = {
    2.578F,  0.358F,  -1.924F, 6.001F,  2.287F, -3.598F, 0.224F,  1.73F,   -0.566F, 2.049F, -0.2F,
    2.002F,  4.316F,  -2.027F, 0.609F,  -1.39F, 0.382F,  -3.562F, -1.738F, -0.589F, 2.696F, 3.436F,
    -3.971F, -2.384F, 1.941F,  -5.977F, -1.39F, -0.292F, 3.771F,  2.068F,  -0.982F, -1.106F};

TEST(FormatVectors, Mxfp4Block32CeilScale) {
  constexpr std::array<float, 32> kWant = {3, 0,  -2, 6,  2, -4, 0,  2,  -1, 2,  -0.0F, 2,     4, -2, 1,  -1,
                                           0, -4, -2, -1, 3, 3,  -4, -2, 2,  -6, -1,    -0.0F, 4, 2,  -1, -1};
  std::array<uint8_t, 16> packed;
  std::array<uint8_t, 1> scale;
  std::array<float, 32> got;
  EncodeMxfp4(kMxfp4X, Mxfp4Rule::kPow2Ceil, absl::MakeSpan(packed), absl::MakeSpan(scale));
  EXPECT_EQ(scale[0], 128);
  DecodeMxfp4(packed, scale, absl::MakeSpan(got));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], kWant[i]) << i;
    EXPECT_EQ(std::signbit(got[i]), std::signbit(kWant[i])) << i;
  }
  EXPECT_EQ(E2m1ToFloat(NibbleAt(packed.data(), 0)), 1.5F);
}

TEST(FormatVectors, Mxfp4OcpRuleDiffersFromDeepSeeks) {
  // amax 6.001: OCP takes 2^(2 - 2) = 1 and clips 6.001 to 6; DeepSeek takes 2.
  std::array<uint8_t, 16> packed;
  std::array<uint8_t, 1> scale;
  std::array<float, 32> got;
  EncodeMxfp4(kMxfp4X, Mxfp4Rule::kOcpFloor, absl::MakeSpan(packed), absl::MakeSpan(scale));
  EXPECT_EQ(scale[0], 127);
  DecodeMxfp4(packed, scale, absl::MakeSpan(got));
  EXPECT_EQ(got[3], 6);
  EXPECT_EQ(got[0], 3);
  EXPECT_EQ(got[1], 0.5F);
}

TEST(FormatVectors, Fp8DsMlaV4Tile64) {
  constexpr float kAmax = 44.900001525878906F;
  const uint8_t scale = E4m3Pow2Scale(kAmax);
  EXPECT_EQ(scale, 124);
  // The largest error of that tile, 1.75999832, comes within half a step of the highest binade.
  const float s = Ue8m0ToFloat(scale);
  double most = 0;
  for (float x = -kAmax; x <= kAmax; x += 0.01F)
    most = std::max(most, std::fabs(static_cast<double>(E4m3ToFloat(FloatToE4m3(x / s)) * s) - x));
  EXPECT_GE(most, 1.7599983215332031);
  EXPECT_LE(most, 16 * s);
}

TEST(FormatVectors, Nvfp4Block16) {
  constexpr std::array<float, 16> kX = {-0.051F, -0.793F, -0.626F, -1.278F, 1.257F, -0.154F,
                                        0.966F,  0.013F,  -0.694F, -0.327F, -0.56F, 0.008F,
                                        -0.375F, -0.3F,   -1.379F, -0.807F};
  constexpr std::array<float, 16> kWant = {
      -0.0F,      -0.703125F,  -0.703125F, -1.40625F, 1.40625F,    -0.1171875F, 0.9375F,   0,
      -0.703125F, -0.3515625F, -0.46875F,  0,         -0.3515625F, -0.3515625F, -1.40625F, -0.703125F};
  std::array<uint8_t, 8> packed;
  std::array<uint8_t, 1> scale;
  std::array<float, 16> got;
  EncodeNvfp4(kX, 1.0F, absl::MakeSpan(packed), absl::MakeSpan(scale));
  EXPECT_EQ(E4m3ToFloat(scale[0]), 0.234375F);
  DecodeNvfp4(packed, scale, 1.0F, absl::MakeSpan(got));
  EXPECT_THAT(got, ElementsAreArray(kWant));
}

TEST(FormatVectors, KiviInt4KeyPerChannel) {
  constexpr float kK[4][2] = {{1.654F, -0.671F}, {-1.054F, 0.337F}, {1.407F, -1.454F}, {-0.209F, -0.632F}};
  constexpr uint8_t kCodes[4][2] = {{15, 7}, {0, 15}, {14, 0}, {5, 7}};
  constexpr float kWant[4][2] = {
      {1.654F, -0.6182F}, {-1.054F, 0.337F}, {1.473467F, -1.454F}, {-0.151333F, -0.6182F}};
  const std::array<Int4Params, 2> params = {Int4Range(-1.054F, 1.654F), Int4Range(-1.454F, 0.337F)};
  EXPECT_NEAR(params[0].scale, 0.180533333, 1e-7);
  EXPECT_NEAR(params[1].scale, 0.1194, 1e-7);
  for (int token = 0; token < 4; ++token) {
    for (int channel = 0; channel < 2; ++channel) {
      const uint8_t code = FloatToInt4(kK[token][channel], params[channel]);
      EXPECT_EQ(code, kCodes[token][channel]);
      EXPECT_NEAR(Int4ToFloat(code, params[channel]), kWant[token][channel], 1e-6);
    }
  }
}

TEST(FormatVectors, V4PageSizes) {
  const struct {
    size_t raw, padded;
  } kPages[] = {{V4TileBytes(64), 37440},    {V4TileBytes(2), 1728}, {64 * kIndexFp8Bytes, 8640},
                {64 * kIndexFp4Bytes, 4608}, {32768, 32832},         {8192, 8640}};
  for (const auto& page : kPages) EXPECT_EQ(V4PageBytes(page.raw), page.padded) << page.raw;
  EXPECT_EQ(V4TileBytes(64), 37376u);
  EXPECT_EQ(V4TileBytes(2), 1168u);
  EXPECT_EQ(64 * kIndexFp8Bytes, 8448u);
  EXPECT_EQ(64 * kIndexFp4Bytes, 4352u);
}

TEST(FormatVectors, RowSizes) {
  EXPECT_EQ(kFp8DsMlaRowBytes, 656u);
  EXPECT_EQ(kNvfp4DsMlaRowBytes, 352u);
  EXPECT_EQ(kV4RowBytes, 584u);
  EXPECT_EQ(kMxfp8RowBytes, 528u);
  EXPECT_EQ(kIndexFp8Bytes, 132u);
  EXPECT_EQ(kIndexFp4Bytes, 68u);
  EXPECT_EQ(Nvfp4SideBytes(128), 72u);
}

// The rule with exact division gives what DeepSeek's kernels give, which multiply by 1 / 448, for every bf16.
TEST(FormatVectors, PowerOfTwoScalesAreThoseOfTheKernelsThatMultiply) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float amax = std::max(std::bit_cast<float>(bits << 16), kAmaxMin);
    ASSERT_EQ(E4m3Pow2Scale(amax), Ue8m0Ceil(amax * (1 / 448.0F))) << amax;
    const float amax4 = std::max(std::bit_cast<float>(bits << 16), 6 * 0x1p-126F);
    ASSERT_EQ(E2m1Pow2Scale(amax4), Ue8m0Ceil(amax4 * (1 / 6.0F))) << amax4;
  }
}

}  // namespace
}  // namespace cistern
