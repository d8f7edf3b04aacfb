#pragma once

#include <bit>
#include <cstdint>

namespace cistern {

// UE8M0, a scale that is a power of two: the code is exponent + 127; 0xff is NaN.
// source: OCP Microscaling Formats (MX) Specification 1.0, 5.4.
inline constexpr uint8_t kUe8m0NanCode = 0xff;
inline constexpr uint8_t kUe8m0CodeMax = 0xfe;

// Exact. Code 0, 2^-127, is a subnormal float.
constexpr float Ue8m0ToFloat(uint8_t code) {
  if (code == kUe8m0NanCode) return std::bit_cast<float>(0x7fc00000u);
  return code == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{code} << 23);
}

// The smallest power of two that is not below `value`; 2^-127 for what is smaller than that, 2^127 for what
// is larger. NaN and negative values: NaN.
constexpr uint8_t Ue8m0Ceil(float value) {
  if (!(value >= 0)) return kUe8m0NanCode;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffff;
  if (exponent == 0) return mantissa > 0x400000 ? 1 : 0;
  const uint32_t code = exponent + (mantissa != 0 ? 1 : 0);
  return static_cast<uint8_t>(code < kUe8m0CodeMax ? code : kUe8m0CodeMax);
}

// The largest power of two that is not above `value`, divided by 2^down; clamped to the codes there are.
// NaN and negative values: NaN.
constexpr uint8_t Ue8m0Floor(float value, int down) {
  if (!(value >= 0)) return kUe8m0NanCode;
  const int code = static_cast<int>(std::bit_cast<uint32_t>(value) >> 23) - down;
  if (code < 0) return 0;
  return static_cast<uint8_t>(code < kUe8m0CodeMax ? code : kUe8m0CodeMax);
}

}  // namespace cistern
