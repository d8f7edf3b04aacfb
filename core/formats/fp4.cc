#include "core/formats/fp4.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/check.h"
#include "core/formats/e2m1.h"
#include "core/formats/e4m3.h"
#include "core/formats/scale_rule.h"

namespace cistern {
namespace {

float Amax(absl::Span<const float> values) {
  float amax = 0;
  for (const float value : values) {
    const float magnitude = std::fabs(value);
    if (!(magnitude <= amax)) amax = magnitude;  // A NaN stays.
  }
  return amax;
}

void CheckSizes(size_t values, size_t packed, size_t scales, size_t block) {
  CISTERN_CHECK(values % block == 0);
  CISTERN_CHECK(packed == values / 2);
  CISTERN_CHECK(scales == values / block);
}

void EncodeBlock(absl::Span<const float> values, float scale, uint8_t* packed) {
  const auto code = [&](float value) { return scale > 0 ? FloatToE2m1(value / scale) : uint8_t{0}; };
  for (size_t i = 0; i < values.size(); i += 2)
    packed[i / 2] = PackNibbles(code(values[i]), code(values[i + 1]));
}

void DecodeBlock(const uint8_t* packed, float scale, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = E2m1ToFloat(NibbleAt(packed, i)) * scale;
}

}  // namespace

void EncodeMxfp4(absl::Span<const float> values, Mxfp4Rule rule, absl::Span<uint8_t> packed,
                 absl::Span<uint8_t> scales) {
  CheckSizes(values.size(), packed.size(), scales.size(), kMxfp4Block);
  for (size_t block = 0; block < scales.size(); ++block) {
    const auto mine = values.subspan(block * kMxfp4Block, kMxfp4Block);
    const float amax = Amax(mine);
    scales[block] = rule == Mxfp4Rule::kPow2Ceil ? E2m1Pow2Scale(amax) : E2m1OcpScale(amax);
    EncodeBlock(mine, Ue8m0ToFloat(scales[block]), &packed[block * kMxfp4Block / 2]);
  }
}

void DecodeMxfp4(absl::Span<const uint8_t> packed, absl::Span<const uint8_t> scales,
                 absl::Span<float> values) {
  CheckSizes(values.size(), packed.size(), scales.size(), kMxfp4Block);
  for (size_t block = 0; block < scales.size(); ++block) {
    DecodeBlock(&packed[block * kMxfp4Block / 2], Ue8m0ToFloat(scales[block]),
                values.subspan(block * kMxfp4Block, kMxfp4Block));
  }
}

void EncodeNvfp4(absl::Span<const float> values, float tensor_scale, absl::Span<uint8_t> packed,
                 absl::Span<uint8_t> scales) {
  CheckSizes(values.size(), packed.size(), scales.size(), kNvfp4Block);
  for (size_t block = 0; block < scales.size(); ++block) {
    const auto mine = values.subspan(block * kNvfp4Block, kNvfp4Block);
    scales[block] = FloatToE4m3(Amax(mine) / kE2m1Max / tensor_scale);
    EncodeBlock(mine, E4m3ToFloat(scales[block]) * tensor_scale, &packed[block * kNvfp4Block / 2]);
  }
}

void DecodeNvfp4(absl::Span<const uint8_t> packed, absl::Span<const uint8_t> scales, float tensor_scale,
                 absl::Span<float> values) {
  CheckSizes(values.size(), packed.size(), scales.size(), kNvfp4Block);
  for (size_t block = 0; block < scales.size(); ++block) {
    DecodeBlock(&packed[block * kNvfp4Block / 2], E4m3ToFloat(scales[block]) * tensor_scale,
                values.subspan(block * kNvfp4Block, kNvfp4Block));
  }
}

float Nvfp4TensorScale(float tensor_amax) { return std::max(tensor_amax / (kE2m1Max * kE4m3Max), FLT_MIN); }

}  // namespace cistern
