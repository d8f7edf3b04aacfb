#pragma once

#include <bit>
#include <cstdint>

namespace cistern {

// E4M3, the "fn" kind: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is 0x7f and 0xff.
// source: OCP 8-bit Floating Point Specification 1.0; PyTorch's float8_e4m3fn.
inline constexpr float kE4m3Max = 448;
inline constexpr uint8_t kE4m3NanCode = 0x7f;
inline constexpr float kE4m3NormalMin = 0x1p-6f;
inline constexpr float kE4m3Step = 0x1p-9f;  // Distance of subnormal values.

// Exact. A NaN keeps its sign.
constexpr float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24;
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == kE4m3NanCode) return std::bit_cast<float>(sign | 0x7fc00000);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * kE4m3Step;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// Nearest, ties to even mantissa; what is larger than 448, infinity too, becomes 448 (CUDA's __NV_SATFINITE;
// PyTorch's cast would give NaN from 464 on). A NaN stays one and keeps its sign, as PyTorch's does.
constexpr uint8_t FloatToE4m3(float value) {
  constexpr auto kMaxBits = std::bit_cast<uint32_t>(kE4m3Max);
  constexpr auto kNormalBits = std::bit_cast<uint32_t>(kE4m3NormalMin);
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | kE4m3NanCode;
  if (magnitude >= kMaxBits) return sign | 0x7e;
  if (magnitude >= kNormalBits) {
    const uint32_t rounded = magnitude + 0x7ffff + ((magnitude >> 20) & 1);
    return sign | static_cast<uint8_t>((rounded >> 20) - (120 << 3));
  }
  // Below the normal values: how many steps of 2^-9, the fraction rounded by hand.
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 117) return sign;  // Less than half a step.
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t shift = 141 - exponent;
  const uint32_t steps = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
  const bool up = rest > half || (rest == half && (steps & 1) != 0);
  return sign | static_cast<uint8_t>(steps + (up ? 1 : 0));
}

}  // namespace cistern
