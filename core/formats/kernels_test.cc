#include "core/formats/kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/formats/bf16.h"
#include "core/formats/e4m3.h"
#include "core/random.h"

namespace cistern {
#if defined(CISTERN_HAS_AVX512_EMULATION)
const FormatKernels& EmulatedAvx512Kernels();
#endif
namespace {

// What an infinite or missing scale in damaged bytes does must be the same everywhere, too.
constexpr std::array<float, 14> kScales = {1,
                                           0x1p-3F,
                                           0x1p-126F,
                                           0x1p100F,
                                           0.0123F,
                                           3.7F,
                                           1.1754945e-38F,
                                           1e-45F,
                                           0,
                                           -0.5F,
                                           1e35F,
                                           3e38F,
                                           std::numeric_limits<float>::infinity(),
                                           std::numeric_limits<float>::quiet_NaN()};

struct Named {
  const char* name;
  const FormatKernels* kernels;
};
// Null where this machine cannot run them.
class WideKernels : public ::testing::TestWithParam<Named> {
 protected:
  void SetUp() override {
    if (GetParam().kernels == nullptr) GTEST_SKIP() << "this CPU has no " << GetParam().name;
  }
  const FormatKernels& wide() const { return *GetParam().kernels; }
  const FormatKernels& scalar() const { return ScalarKernels(); }
};

std::vector<uint16_t> AllBf16() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

TEST_P(WideKernels, EncodeEveryBf16AsTheScalarCodeDoes) {
  const std::vector<uint16_t> all = AllBf16();
  for (const float scale : kScales) {
    std::vector<uint8_t> want(all.size()), got(all.size());
    scalar().e4m3_encode(all.data(), all.size(), scale, want.data());
    wide().e4m3_encode(all.data(), all.size(), scale, got.data());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got[i], want[i]) << "e4m3 " << i << " / " << scale;
    std::vector<int8_t> want8(all.size()), got8(all.size());
    scalar().int8_encode(all.data(), all.size(), scale, want8.data());
    wide().int8_encode(all.data(), all.size(), scale, got8.data());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got8[i], want8[i]) << "int8 " << i << " / " << scale;
  }
}

TEST_P(WideKernels, DecodeEveryCodeAsTheScalarCodeDoes) {
  std::array<uint8_t, 256> codes;
  std::array<int8_t, 256> codes8;
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i), codes8[i] = static_cast<int8_t>(i);
  for (const float scale : kScales) {
    std::array<uint16_t, 256> want, got;
    scalar().e4m3_decode(codes.data(), 256, scale, want.data());
    wide().e4m3_decode(codes.data(), 256, scale, got.data());
    for (int i = 0; i < 256; ++i) ASSERT_EQ(got[i], want[i]) << "e4m3 " << i << " x " << scale;
    scalar().int8_decode(codes8.data(), 256, scale, want.data());
    wide().int8_decode(codes8.data(), 256, scale, got.data());
    for (int i = 0; i < 256; ++i) ASSERT_EQ(got[i], want[i]) << "int8 " << i << " x " << scale;
  }
}

// Random scales, lengths and alignments, with guard bytes around what may be written.
TEST_P(WideKernels, AgreeOnOddLengthsAndAddressesAndTouchNothingElse) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed << " (--gtest_random_seed)");
  Random random(seed);
  constexpr size_t kMax = 200, kGuard = 64;
  const auto bytes = [&](size_t n) {
    std::vector<std::byte> out(n);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random.Next());
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    const size_t n = random.Below(kMax), shift = random.Below(8);
    const float scale =
        std::ldexp(1 + static_cast<float>(random.Unit()), static_cast<int>(random.Below(60)) - 40);
    const std::vector<std::byte> from = bytes(kMax * 4 + 8);
    const std::byte* in = from.data() + shift;
    // Bytes that each call may write, at most; both sides start with the same ones.
    const std::vector<std::byte> before = bytes(kMax * 4 + 2 * kGuard);
    std::vector<std::byte> want, got;
    const auto compare = [&](const char* what, const auto& call) {
      want = before, got = before;
      call(scalar(), want.data() + kGuard + shift);
      call(wide(), got.data() + kGuard + shift);
      ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size()), 0)
          << what << " n " << n << " shift " << shift << " scale " << scale;
    };
    using Out = std::byte*;
    compare("e4m3_encode", [&](const FormatKernels& k, Out to) {
      k.e4m3_encode(in, n, scale, reinterpret_cast<uint8_t*>(to));
    });
    compare("int8_encode", [&](const FormatKernels& k, Out to) {
      k.int8_encode(in, n, scale, reinterpret_cast<int8_t*>(to));
    });
    compare("e4m3_decode", [&](const FormatKernels& k, Out to) {
      k.e4m3_decode(reinterpret_cast<const uint8_t*>(in), n, scale, to);
    });
    compare("int8_decode", [&](const FormatKernels& k, Out to) {
      k.int8_decode(reinterpret_cast<const int8_t*>(in), n, scale, to);
    });
    compare("bf16_from_float", [&](const FormatKernels& k, Out to) { k.bf16_from_float(in, n, to); });
    compare("float_from_bf16", [&](const FormatKernels& k, Out to) { k.float_from_bf16(in, n, to); });
    ASSERT_EQ(scalar().amax(in, n), wide().amax(in, n)) << "n " << n << " shift " << shift;
  }
}

TEST_P(WideKernels, FindTheLargestMagnitudeWhereverItStands) {
  for (size_t n = 1; n <= 130; ++n) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<uint16_t> values(n, 0x8001);
      values[at] = 0xc123;
      ASSERT_EQ(wide().amax(values.data(), n), 0x4123) << n << " " << at;
    }
  }
  EXPECT_EQ(wide().amax(nullptr, 0), 0);
}

// Also of floats whose last 16 bits decide.
TEST_P(WideKernels, NarrowFloatsAsTheScalarCodeDoes) {
  for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<uint32_t> floats(65536);
    for (uint32_t i = 0; i < 65536; ++i) floats[i] = i << 16 | low;
    std::vector<uint16_t> want(65536), got(65536);
    scalar().bf16_from_float(floats.data(), floats.size(), want.data());
    wide().bf16_from_float(floats.data(), floats.size(), got.data());
    ASSERT_EQ(want, got) << low;
  }
}

std::vector<Named> AllWide() {
  std::vector<Named> all = {{"avx2", Avx2Kernels()}, {"avx512", Avx512Kernels()}};
#if defined(CISTERN_HAS_AVX512_EMULATION)
  all.push_back({"avx512_emulated", &EmulatedAvx512Kernels()});
#endif
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, WideKernels, ::testing::ValuesIn(AllWide()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(FormatKernels, TheChoiceIsTheWidestThereIs) {
  const FormatKernels* want = Avx512Kernels() != nullptr ? Avx512Kernels() : Avx2Kernels();
  EXPECT_EQ(&Kernels(), want != nullptr ? want : &ScalarKernels());
}

TEST(FormatKernels, ScalarInt8TakesInfinityAndNanAsSaid) {
  constexpr std::array<uint16_t, 5> kValues = {0x7f80, 0xff80, 0x7fc0, 0x3f00,
                                               0x3fc0};  // inf -inf NaN .5 1.5
  std::array<int8_t, 5> codes;
  ScalarKernels().int8_encode(kValues.data(), 5, 1, codes.data());
  EXPECT_EQ(codes, (std::array<int8_t, 5>{127, -127, 0, 0, 2}));
}

}  // namespace
}  // namespace cistern
