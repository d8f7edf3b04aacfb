#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/formats/bf16.h"
#include "core/formats/e2m1.h"
#include "core/formats/e4m3.h"
#include "core/formats/int4.h"
#include "core/formats/ue8m0.h"

namespace cistern {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// OCP 8-bit Floating Point Specification 1.0, codes 0x00 to 0x7e; 0x7f is NaN, the other half is negative.
constexpr std::array<double, 127> kE4m3Table = {
    0,        0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875,
    0.015625, 0.017578125, 0.01953125, 0.021484375, 0.0234375, 0.025390625, 0.02734375, 0.029296875,
    0.03125,  0.03515625,  0.0390625,  0.04296875,  0.046875,  0.05078125,  0.0546875,  0.05859375,
    0.0625,   0.0703125,   0.078125,   0.0859375,   0.09375,   0.1015625,   0.109375,   0.1171875,
    0.125,    0.140625,    0.15625,    0.171875,    0.1875,    0.203125,    0.21875,    0.234375,
    0.25,     0.28125,     0.3125,     0.34375,     0.375,     0.40625,     0.4375,     0.46875,
    0.5,      0.5625,      0.625,      0.6875,      0.75,      0.8125,      0.875,      0.9375,
    1,        1.125,       1.25,       1.375,       1.5,       1.625,       1.75,       1.875,
    2,        2.25,        2.5,        2.75,        3,         3.25,        3.5,        3.75,
    4,        4.5,         5,          5.5,         6,         6.5,         7,          7.5,
    8,        9,           10,         11,          12,        13,          14,         15,
    16,       18,          20,         22,          24,        26,          28,         30,
    32,       36,          40,         44,          48,        52,          56,         60,
    64,       72,          80,         88,          96,        104,         112,        120,
    128,      144,         160,        176,         192,       208,         224,        240,
    256,      288,         320,        352,         384,       416,         448};

bool SameFloat(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// The code whose value is nearest, by looking at all of them; of two equally near ones the even code.
template <typename Value>
uint8_t Nearest(double magnitude, int codes, const Value& value) {
  int best = 0;
  for (int code = 1; code < codes; ++code) {
    const double now = std::fabs(value(code) - magnitude), before = std::fabs(value(best) - magnitude);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best);
}

// Every bf16, and floats just beside the middle between two of them.
template <typename Visit>
void ForManyFloats(const Visit& visit) {
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      visit(std::bit_cast<float>(high << 16 | low));
  }
}

TEST(E4m3, All256CodesHaveThePublishedValues) {
  for (int code = 0; code < 127; ++code) {
    EXPECT_EQ(E4m3ToFloat(static_cast<uint8_t>(code)), kE4m3Table[code]) << code;
    EXPECT_TRUE(
        SameFloat(E4m3ToFloat(static_cast<uint8_t>(code | 0x80)), static_cast<float>(-kE4m3Table[code])));
  }
  EXPECT_TRUE(std::isnan(E4m3ToFloat(0x7f)));
  EXPECT_TRUE(std::isnan(E4m3ToFloat(0xff)));
}

TEST(E4m3, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code)
    EXPECT_EQ(FloatToE4m3(E4m3ToFloat(static_cast<uint8_t>(code))), code) << code;
}

TEST(E4m3, RoundsToTheNearestOfAllValuesAndTiesToEven) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {  // Magnitudes; a search for each is slow enough.
    const float value = Bf16ToFloat(static_cast<uint16_t>(high));
    const uint8_t want = Nearest(value, 127, [](int code) { return kE4m3Table[code]; });
    ASSERT_EQ(FloatToE4m3(value), want) << value;
    ASSERT_EQ(FloatToE4m3(-value), want | 0x80) << value;
  }
  for (int code = 0; code + 1 < 127; ++code) {
    const auto middle = static_cast<float>((kE4m3Table[code] + kE4m3Table[code + 1]) / 2);
    EXPECT_EQ(FloatToE4m3(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, kInfinity)), code + 1);
  }
}

TEST(E4m3, SaturatesAndKeepsNan) {
  EXPECT_EQ(FloatToE4m3(448), 0x7e);
  EXPECT_EQ(FloatToE4m3(464), 0x7e);
  EXPECT_EQ(FloatToE4m3(1e30F), 0x7e);
  EXPECT_EQ(FloatToE4m3(kInfinity), 0x7e);
  EXPECT_EQ(FloatToE4m3(-kInfinity), 0xfe);
  EXPECT_EQ(FloatToE4m3(kNan), 0x7f);
  EXPECT_EQ(FloatToE4m3(std::copysign(kNan, -1.0F)), 0xff);
}

TEST(E4m3, ErrorIsWithinTheDocumentedBound) {
  ForManyFloats([](float value) {
    if (!(std::fabs(value) <= kE4m3Max)) return;
    const double error = std::fabs(static_cast<double>(E4m3ToFloat(FloatToE4m3(value))) - value);
    ASSERT_LE(error, std::max(std::fabs(static_cast<double>(value)) * 0x1p-4, 0x1p-10)) << value;
  });
}

TEST(E2m1, All16CodesHaveThePublishedValuesAndComeBack) {
  constexpr std::array<float, 8> kTable = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float want = code < 8 ? kTable[code] : -kTable[code - 8];
    EXPECT_TRUE(SameFloat(E2m1ToFloat(static_cast<uint8_t>(code)), want)) << code;
    EXPECT_EQ(FloatToE2m1(want), code);
  }
}

TEST(E2m1, RoundsToTheNearestOfAllValuesAndTiesToEven) {
  ForManyFloats([](float value) {
    if (std::isnan(value)) return;
    const double magnitude = std::min(std::fabs(static_cast<double>(value)), 6.0);
    const uint8_t want = Nearest(magnitude, 8, [](int code) { return kE2m1Magnitudes[code]; });
    ASSERT_EQ(FloatToE2m1(value), want | (std::signbit(value) ? 8 : 0)) << value;
  });
  for (int code = 0; code + 1 < 8; ++code) {
    const float middle = (kE2m1Magnitudes[code] + kE2m1Magnitudes[code + 1]) / 2;
    EXPECT_EQ(FloatToE2m1(middle), code % 2 == 0 ? code : code + 1);
  }
  EXPECT_EQ(FloatToE2m1(kNan), 7);  // As hardware has it: there is no code for NaN.
}

TEST(E2m1, ErrorIsWithinTheDocumentedBound) {
  ForManyFloats([](float value) {
    if (!(std::fabs(value) <= kE2m1Max)) return;
    const double error = std::fabs(static_cast<double>(E2m1ToFloat(FloatToE2m1(value))) - value);
    ASSERT_LE(error, std::max(std::fabs(static_cast<double>(value)) / 4, 0.25)) << value;
  });
}

TEST(E2m1, TheLowNibbleIsTheEvenElement) {
  const uint8_t byte = PackNibbles(0x3, 0xc);
  EXPECT_EQ(byte, 0xc3);
  EXPECT_EQ(NibbleAt(&byte, 0), 0x3);
  EXPECT_EQ(NibbleAt(&byte, 1), 0xc);
}

TEST(Ue8m0, All256CodesHaveThePublishedValues) {
  for (int code = 0; code < 255; ++code) {
    const float want = std::ldexp(1.0F, code - 127);
    EXPECT_EQ(Ue8m0ToFloat(static_cast<uint8_t>(code)), want) << code;
    EXPECT_EQ(Ue8m0Ceil(want), code);
    EXPECT_EQ(Ue8m0Floor(want, 0), code);
  }
  EXPECT_TRUE(std::isnan(Ue8m0ToFloat(0xff)));
}

TEST(Ue8m0, CeilIsTheSmallestPowerNotBelowAndFloorTheLargestNotAbove) {
  ForManyFloats([](float value) {
    if (!(value > 0) || std::isinf(value)) return;
    const float up = Ue8m0ToFloat(Ue8m0Ceil(value));
    if (value <= 0x1p127F) {
      ASSERT_GE(up, value);
      ASSERT_TRUE(up == 0x1p-127F || up / 2 < value) << value;
    } else {
      ASSERT_EQ(up, 0x1p127F);
    }
    const float down = Ue8m0ToFloat(Ue8m0Floor(value, 0));
    ASSERT_TRUE(down <= value || down == 0x1p-127F) << value;
    ASSERT_TRUE(down == 0x1p-127F || down * 2 > value) << value;
  });
  EXPECT_EQ(Ue8m0Ceil(0), 0);
  EXPECT_EQ(Ue8m0Ceil(kInfinity), kUe8m0CodeMax);
  EXPECT_EQ(Ue8m0Ceil(kNan), kUe8m0NanCode);
  EXPECT_EQ(Ue8m0Ceil(-1), kUe8m0NanCode);
  EXPECT_EQ(Ue8m0Floor(kInfinity, 8), 255 - 8);
  EXPECT_EQ(Ue8m0Floor(0x1p-125F, 8), 0);
  EXPECT_EQ(Ue8m0Floor(kNan, 0), kUe8m0NanCode);
}

TEST(Bf16, EveryValueComesBackAndNanTurnsQuiet) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bool nan = (bits & 0x7fff) > kBf16Infinity;
    ASSERT_EQ(FloatToBf16(Bf16ToFloat(static_cast<uint16_t>(bits))), nan ? bits | 0x40 : bits);
  }
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t here = bits << 16;
    EXPECT_EQ(FloatToBf16(std::bit_cast<float>(here | 0x7fff)), bits);
    EXPECT_EQ(FloatToBf16(std::bit_cast<float>(here | 0x8000)), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(FloatToBf16(std::bit_cast<float>(here | 0x8001)), bits + 1);
    EXPECT_EQ(FloatToBf16(std::bit_cast<float>(here | 0x80008001)), (bits + 1) | 0x8000);
  }
  EXPECT_EQ(FloatToBf16(3.4e38F), kBf16Infinity);  // Above the largest by more than half a step.
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0xffbfffffu)), 0xffff);
}

TEST(Int4, EveryCodeComesBackAndTheRangeIsCovered) {
  for (const float min : {-3.0F, 0.0F, 100.0F, -3e38F}) {
    for (const float range : {0.5F, 7.3F, 1e-3F, 3e38F}) {
      const float max = min + range;
      if (!(max > min)) continue;
      const Int4Params params = Int4RangeBf16(min, max);
      EXPECT_EQ(Bf16ToFloat(FloatToBf16(params.scale)), params.scale);
      EXPECT_GE(params.scale, Int4Range(min, max).scale);
      EXPECT_EQ(FloatToInt4(min, params), 0);
      for (uint8_t code = 0; code <= kInt4CodeMax; ++code) {
        const float value = Int4ToFloat(code, params);
        // Only where a float can tell neighbours apart.
        if (std::fabs(value) < params.scale * 0x1p20F) {
          EXPECT_EQ(FloatToInt4(value, params), code);
        }
      }
    }
  }
  EXPECT_EQ(FloatToInt4(5, Int4Range(5, 5)), 0);
  EXPECT_EQ(Int4ToFloat(0, Int4Range(5, 5)), 5);
}

}  // namespace
}  // namespace cistern
