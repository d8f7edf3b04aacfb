#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cistern {

// Asymmetric 4 bits after KIVI (Liu et al., 2024): K is scaled per channel over a group of tokens, because
// its large values sit in few channels; V per token over a group of channels. value = zero + code * scale.
inline constexpr size_t kInt4Group = 32;
inline constexpr int kInt4CodeMax = 15;
inline constexpr float kBf16Max = 0x1.fep127F;

struct Int4Params {
  float zero = 0;   // The group's smallest value.
  float scale = 0;  // A fifteenth of its range; 0 when all are equal.
};
constexpr Int4Params Int4Range(float min, float max) {
  return {min, static_cast<float>((static_cast<double>(max) - min) / kInt4CodeMax)};
}
// The same with a scale that bf16 can hold, rounded up, so that the largest value is still in reach. The zero
// of bf16 values is a bf16 itself.
constexpr Int4Params Int4RangeBf16(float min, float max) {
  Int4Params out = Int4Range(min, max);
  const auto bits = std::bit_cast<uint32_t>(out.scale);
  out.scale = std::bit_cast<float>((bits + 0xffff) & 0xffff0000u);
  return out;
}

// Nearest, ties to even; in double, where neither the difference nor the quotient of bf16 values overflows.
constexpr uint8_t FloatToInt4(float value, const Int4Params& params) {
  if (!(params.scale > 0)) return 0;
  const double steps = (static_cast<double>(value) - params.zero) / params.scale;
  if (!(steps > 0)) return 0;  // A NaN, too.
  const double near = std::min(steps, static_cast<double>(kInt4CodeMax)) + 0x1.8p52 - 0x1.8p52;
  return static_cast<uint8_t>(near);
}
constexpr float Int4ToFloat(uint8_t code, const Int4Params& params) {
  const double value = params.zero + code * static_cast<double>(params.scale);
  return static_cast<float>(std::clamp<double>(value, -kBf16Max, kBf16Max));
}

// Planes of one tile of `tokens` rows of `elements` bf16, any alignment; elements even.
//   keys:   [tokens][elements / 2] codes, [elements] bf16 zeros, [elements] bf16 scales
//   values: [tokens][elements / 2] codes, [tokens][groups] bf16 zeros, [tokens][groups] bf16 scales
// Two codes a byte, the low nibble the even element; groups = elements / kInt4Group, rounded up.
constexpr size_t Int4KeyBytes(size_t tokens, size_t elements) { return tokens * elements / 2 + elements * 4; }
constexpr size_t Int4ValueBytes(size_t tokens, size_t elements) {
  return tokens * (elements / 2 + (elements + kInt4Group - 1) / kInt4Group * 4);
}
void EncodeInt4Keys(const void* bf16, size_t tokens, size_t elements, uint8_t* to);
void DecodeInt4Keys(const uint8_t* from, size_t tokens, size_t elements, void* bf16);
void EncodeInt4Values(const void* bf16, size_t tokens, size_t elements, uint8_t* to);
void DecodeInt4Values(const uint8_t* from, size_t tokens, size_t elements, void* bf16);

}  // namespace cistern
