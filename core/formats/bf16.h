#pragma once

#include <bit>
#include <cstdint>

namespace cistern {

// bf16 is the upper half of an IEEE float: 1 sign, 8 exponent, 7 mantissa bits. It travels as uint16_t.
constexpr float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Nearest, ties to even; a value too large becomes infinity. A NaN keeps its sign and upper payload bits and
// turns quiet, as in VCVTNEPS2BF16; unlike that instruction this keeps subnormal numbers, as PyTorch does.
constexpr uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline constexpr uint16_t kBf16MagnitudeMask = 0x7fff;
inline constexpr uint16_t kBf16Infinity = 0x7f80;  // A magnitude from here on is infinite or NaN.

}  // namespace cistern
