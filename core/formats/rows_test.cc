#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/formats/e2m1.h"
#include "core/formats/e4m3.h"
#include "core/formats/fp4.h"
#include "core/formats/index_keys.h"
#include "core/formats/mla_rows.h"
#include "core/formats/scale_rule.h"
#include "core/formats/testing/values.h"

namespace cistern {
namespace {

constexpr int kRounds = 200;

class Rows : public ::testing::Test {
 protected:
  const uint64_t seed_ = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                "seed " + std::to_string(seed_) + " (--gtest_random_seed)"};
  Random random_{seed_};
  std::vector<std::byte> memory_;
};

// |value - decoded| of E4M3 with `scale`, and of E2M1 (docs/formats.md). The factor is fp32's own rounding.
double E4m3Bound(double value, double scale) {
  return std::max(std::fabs(value) * 0x1p-4, scale * 0x1p-10) * (1 + 0x1p-20);
}
double E2m1Bound(double value, double scale) { return std::max(std::fabs(value), scale) / 4 * (1 + 0x1p-20); }

TEST_F(Rows, Fp8DsMlaHas512CodesFourScalesAndBf16Rope) {
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<uint16_t> in = CacheValues(random_, kMlaElements);
    std::array<uint8_t, kFp8DsMlaRowBytes> row;
    std::array<float, kMlaElements> out;
    EncodeFp8DsMlaRow(AtOddAddress(in, memory_), row.data());
    DecodeFp8DsMlaRow(row.data(), out.data());
    for (size_t i = 0; i < 512; ++i) {
      const float scale = LoadLe<float>(&row[512 + i / 128 * 4]);
      ASSERT_EQ(scale, E4m3Scale(static_cast<float>(AmaxOfRange(in, i / 128 * 128, 128))));
      ASSERT_EQ(row[i], FloatToE4m3(Bf16ToFloat(in[i]) / scale));
      ASSERT_EQ(out[i], E4m3ToFloat(row[i]) * scale);
      ASSERT_LE(std::fabs(out[i] - Bf16ToFloat(in[i])), E4m3Bound(Bf16ToFloat(in[i]), scale));
    }
    ASSERT_EQ(std::memcmp(&row[528], &in[512], 128), 0);
    for (size_t i = 512; i < kMlaElements; ++i) ASSERT_EQ(out[i], Bf16ToFloat(in[i]));
  }
}

TEST_F(Rows, Nvfp4DsMlaKeepsTheScaleOfBlockSAtItsPlace) {
  // Block s holds only values of one magnitude, so its scale says which block it is.
  std::vector<uint16_t> in(kMlaElements, FloatToBf16(0.3F));
  for (size_t i = 0; i < 512; ++i)
    in[i] =
        FloatToBf16(static_cast<float>(6 * std::ldexp(1 + i / 16 % 8 / 8.0, static_cast<int>(i / 128) - 4)));
  std::array<uint8_t, kNvfp4DsMlaRowBytes> row;
  EncodeNvfp4DsMlaRow(in.data(), 1, row.data());
  std::vector<bool> seen(32);
  for (size_t block = 0; block < 32; ++block) {
    const size_t byte = 8 * (block & 3) + (block >> 2);
    EXPECT_EQ(E4m3ToFloat(row[256 + 64 + byte]),
              std::ldexp(1 + block % 8 / 8.0, static_cast<int>(block / 8) - 4))
        << block;
    seen[byte] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 32);  // No two blocks share a byte.
  EXPECT_EQ(row[256], FloatToE4m3(Bf16ToFloat(FloatToBf16(0.3F))));
}

TEST_F(Rows, Nvfp4DsMlaIsWithinItsBounds) {
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<uint16_t> in = CacheValues(random_, kMlaElements);
    const float g = Nvfp4TensorScale(static_cast<float>(AmaxOfRange(in, 0, 512)));
    std::array<uint8_t, kNvfp4DsMlaRowBytes> row;
    std::array<float, kMlaElements> out;
    EncodeNvfp4DsMlaRow(AtOddAddress(in, memory_), g, row.data());
    DecodeNvfp4DsMlaRow(row.data(), g, out.data());
    for (size_t i = 0; i < 512; ++i) {
      const size_t block = i / 16;
      const double scale = double{E4m3ToFloat(row[320 + Nvfp4DsMlaScaleByte(block)])} * g;
      const double clip = 6 * 0x1p-10 * g;  // What rounding a small scale down may clip.
      ASSERT_LE(std::fabs(out[i] - Bf16ToFloat(in[i])), E2m1Bound(Bf16ToFloat(in[i]), scale) + clip) << i;
      ASSERT_EQ(out[i], E2m1ToFloat(NibbleAt(row.data(), i)) *
                            (E4m3ToFloat(row[320 + Nvfp4DsMlaScaleByte(block)]) * g));
    }
    for (size_t i = 512; i < kMlaElements; ++i) {  // RoPE has no scale: it saturates at 448.
      const float value = Bf16ToFloat(in[i]);
      ASSERT_LE(std::fabs(out[i] - std::clamp(value, -448.0F, 448.0F)), E4m3Bound(value, 1));
    }
  }
}

TEST_F(Rows, V4TileHasAllRowsBeforeAllScales) {
  for (const size_t rows : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{64}}) {
    const std::vector<uint16_t> in = CacheValues(random_, rows * kV4Elements);
    std::vector<uint8_t> tile(V4TileBytes(rows) + 1, 0xa5);
    std::vector<float> out(rows * kV4Elements);
    EncodeV4Tile(AtOddAddress(in, memory_), rows, tile.data());
    EXPECT_EQ(tile.back(), 0xa5);
    DecodeV4Tile(tile.data(), rows, out.data());
    for (size_t row = 0; row < rows; ++row) {
      const uint8_t* data = &tile[row * 576];
      const uint8_t* scales = &tile[rows * 576 + row * 8];
      EXPECT_EQ(scales[7], 0);
      EXPECT_EQ(std::memcmp(data + 448, &in[row * 512 + 448], 128), 0);
      for (size_t i = 0; i < 448; ++i) {
        const float value = Bf16ToFloat(in[row * 512 + i]), scale = Ue8m0ToFloat(scales[i / 64]);
        ASSERT_EQ(scales[i / 64],
                  E4m3Pow2Scale(static_cast<float>(AmaxOfRange(in, row * 512 + i / 64 * 64, 64))));
        ASSERT_EQ(data[i], FloatToE4m3(value / scale));
        ASSERT_LE(std::fabs(out[row * 512 + i] - value), E4m3Bound(value, scale));
      }
      for (size_t i = 448; i < 512; ++i) ASSERT_EQ(out[row * 512 + i], Bf16ToFloat(in[row * 512 + i]));
    }
  }
}

TEST_F(Rows, Mxfp8FollowsEitherRule) {
  for (const Mxfp8Rule rule : {Mxfp8Rule::kPow2Ceil, Mxfp8Rule::kOcpFloor}) {
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<uint16_t> in = CacheValues(random_, 512);
      std::array<uint8_t, kMxfp8RowBytes> row;
      std::array<float, 512> out;
      EncodeMxfp8Row(AtOddAddress(in, memory_), rule, row.data());
      DecodeMxfp8Row(row.data(), out.data());
      for (size_t i = 0; i < 512; ++i) {
        const auto amax = static_cast<float>(AmaxOfRange(in, i / 32 * 32, 32));
        const float scale = Ue8m0ToFloat(row[512 + i / 32]);
        ASSERT_EQ(row[512 + i / 32], rule == Mxfp8Rule::kPow2Ceil ? E4m3Pow2Scale(amax) : E4m3OcpScale(amax));
        // OCP's scale is up to 8/7 too small: what lies above 448 of it is clipped.
        const double value = Bf16ToFloat(in[i]);
        ASSERT_LE(std::fabs(out[i] - std::clamp(value, -448.0 * scale, 448.0 * scale)),
                  E4m3Bound(value, scale));
      }
    }
  }
}

TEST_F(Rows, IndexKeysFp8HaveAllKeysBeforeAllScales) {
  for (const IndexScale rule : {IndexScale::kFp32, IndexScale::kPow2Fp32}) {
    constexpr size_t kRows = 5;
    const std::vector<uint16_t> in = CacheValues(random_, kRows * 128);
    std::vector<uint8_t> tile(kRows * kIndexFp8Bytes);
    std::vector<float> out(in.size());
    EncodeIndexFp8Tile(AtOddAddress(in, memory_), kRows, rule, tile.data());
    DecodeIndexFp8Tile(tile.data(), kRows, out.data());
    for (size_t i = 0; i < in.size(); ++i) {
      const auto scale = LoadLe<float>(&tile[kRows * 128 + i / 128 * 4]);
      const double amax = AmaxOfRange(in, i / 128 * 128, 128);
      int exponent;
      if (rule == IndexScale::kPow2Fp32) {
        ASSERT_EQ(std::frexp(scale, &exponent), 0.5F);
      } else {
        ASSERT_EQ(scale, static_cast<float>(amax) / 448);
      }
      ASSERT_EQ(tile[i], FloatToE4m3(Bf16ToFloat(in[i]) / scale));
      ASSERT_LE(std::fabs(out[i] - Bf16ToFloat(in[i])), E4m3Bound(Bf16ToFloat(in[i]), scale));
    }
  }
}

TEST_F(Rows, IndexKeysFp4HaveAllKeysBeforeAllScales) {
  constexpr size_t kRows = 64;
  const std::vector<uint16_t> in = CacheValues(random_, kRows * 128);
  std::vector<uint8_t> tile(kRows * kIndexFp4Bytes);
  std::vector<float> out(in.size());
  EncodeIndexFp4Tile(AtOddAddress(in, memory_), kRows, tile.data());
  DecodeIndexFp4Tile(tile.data(), kRows, out.data());
  for (size_t i = 0; i < in.size(); ++i) {
    const uint8_t code = tile[kRows * 64 + i / 32];
    ASSERT_EQ(code, E2m1Pow2Scale(static_cast<float>(AmaxOfRange(in, i / 32 * 32, 32))));
    ASSERT_EQ(NibbleAt(tile.data(), i), FloatToE2m1(Bf16ToFloat(in[i]) / Ue8m0ToFloat(code)));
    ASSERT_LE(std::fabs(out[i] - Bf16ToFloat(in[i])), E2m1Bound(Bf16ToFloat(in[i]), Ue8m0ToFloat(code)));
  }
}

// Zeros have a scale that divides; they and decoded rows encode to themselves.
TEST_F(Rows, ZerosAndDecodedRowsComeBack) {
  const std::vector<uint16_t> zeros(kMlaElements);
  std::array<uint8_t, kFp8DsMlaRowBytes> row;
  std::array<float, kMlaElements> values;
  EncodeFp8DsMlaRow(zeros.data(), row.data());
  DecodeFp8DsMlaRow(row.data(), values.data());
  for (const float value : values) ASSERT_EQ(value, 0);
  std::array<uint8_t, kV4RowBytes> v4, v4_again;
  EncodeV4Row(zeros.data(), v4.data(), &v4[576]);
  EXPECT_EQ(v4[576], E4m3Pow2Scale(0));
  // Power-of-two scales: decoded values are bf16 exactly, and give the same row again. The largest value is
  // set to the top of its range, so that the scale is, too.
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint16_t> in = CacheValues(random_, kV4Elements);
    for (uint16_t& value : in) value = FloatToBf16(std::clamp(Bf16ToFloat(value), -448.0F, 448.0F));
    for (size_t at = 0; at < kV4Content; at += 64) in[at] = FloatToBf16(448);
    EncodeV4Row(in.data(), v4.data(), &v4[576]);
    DecodeV4Row(v4.data(), &v4[576], values.data());
    for (size_t i = 0; i < kV4Elements; ++i) {
      in[i] = FloatToBf16(values[i]);
      ASSERT_EQ(Bf16ToFloat(in[i]), values[i]);
    }
    EncodeV4Row(in.data(), v4_again.data(), &v4_again[576]);
    ASSERT_EQ(v4, v4_again);
  }
}

// Any bytes decode without harm: NaN codes and NaN scales give NaN.
TEST_F(Rows, AnyBytesDecode) {
  std::vector<uint8_t> bytes(kFp8DsMlaRowBytes * 2);
  std::vector<float> out(2 * kMlaElements);
  for (int round = 0; round < kRounds; ++round) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Next());
    DecodeFp8DsMlaRow(bytes.data(), out.data());
    DecodeNvfp4DsMlaRow(bytes.data(), 1, out.data());
    DecodeV4Tile(bytes.data(), 2, out.data());
    DecodeMxfp8Row(bytes.data(), out.data());
    DecodeIndexFp8Tile(bytes.data(), 8, out.data());
    DecodeIndexFp4Tile(bytes.data(), 8, out.data());
  }
  bytes.assign(bytes.size(), 0xff);
  DecodeV4Row(bytes.data(), &bytes[576], out.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

}  // namespace
}  // namespace cistern
