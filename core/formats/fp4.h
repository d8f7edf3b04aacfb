#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace cistern {

// E2M1 elements in blocks with one scale each: MXFP4 (32, UE8M0) and NVFP4 (16, E4M3 times one fp32 for the
// tensor). Floats in and out; decoding is exact. packed has two elements a byte, low nibble first.
// Sizes: values a multiple of the block, packed half of it, scales one a block (CISTERN_CHECK).
inline constexpr size_t kMxfp4Block = 32;
inline constexpr size_t kNvfp4Block = 16;

enum class Mxfp4Rule {
  kPow2Ceil,  // DeepSeek: nothing is clipped. kRuleE2m1Pow2Ue8m0.
  kOcpFloor,  // OCP's own: what is above 6 times the scale, at most a quarter of it, is clipped.
};

void EncodeMxfp4(absl::Span<const float> values, Mxfp4Rule rule, absl::Span<uint8_t> packed,
                 absl::Span<uint8_t> scales);
void DecodeMxfp4(absl::Span<const uint8_t> packed, absl::Span<const uint8_t> scales,
                 absl::Span<float> values);

// `tensor_scale` is g: a block's scale is E4M3(amax / 6 / g), its values are E2M1(x / (scale * g)). A block
// whose scale rounds to 0 becomes all zeros.
void EncodeNvfp4(absl::Span<const float> values, float tensor_scale, absl::Span<uint8_t> packed,
                 absl::Span<uint8_t> scales);
void DecodeNvfp4(absl::Span<const uint8_t> packed, absl::Span<const uint8_t> scales, float tensor_scale,
                 absl::Span<float> values);
// The g with which the largest block of a tensor gets the largest scale.
float Nvfp4TensorScale(float tensor_amax);

// One K or one V of one head and token: d / 2 packed bytes, then d / 16 scales; 72 B for d = 128.
constexpr size_t Nvfp4SideBytes(size_t elements) { return elements / 2 + elements / kNvfp4Block; }

}  // namespace cistern
