#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cistern {

// E2M1, the element of MXFP4 and NVFP4: bit 3 is the sign, the rest an index into these. No infinity, no NaN.
// source: OCP Microscaling Formats (MX) Specification 1.0, 5.3.3.
inline constexpr float kE2m1Max = 6;
inline constexpr std::array<float, 8> kE2m1Magnitudes = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

// Exact; code 8 is minus zero. Only the low four bits count.
constexpr float E2m1ToFloat(uint8_t code) {
  const float magnitude = kE2m1Magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// Nearest, ties to the even code; above 6 becomes 6; minus zero and what rounds to it keep their sign. A NaN
// becomes +6, as in PTX's cvt.rn.satfinite.e2m1x2: there is no code for it, so callers that may meet one look
// first (CompressPart does).
constexpr uint8_t FloatToE2m1(float value) {
  if (value != value) return 7;
  const bool negative = std::bit_cast<uint32_t>(value) >> 31 != 0;
  const float a = negative ? -value : value;
  const int code =
      (a > 0.25F) + (a >= 0.75F) + (a > 1.25F) + (a >= 1.75F) + (a > 2.5F) + (a >= 3.5F) + (a > 5);
  return static_cast<uint8_t>(code | (negative ? 8 : 0));
}

// Two codes a byte: the low nibble is the even element.
constexpr uint8_t PackNibbles(uint8_t even, uint8_t odd) {
  return static_cast<uint8_t>((even & 15) | ((odd & 15) << 4));
}
constexpr uint8_t NibbleAt(const uint8_t* packed, size_t element) {
  return (element & 1) == 0 ? packed[element / 2] & 15 : packed[element / 2] >> 4;
}

}  // namespace cistern
