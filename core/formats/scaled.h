#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace cistern {

// 8-bit elements with fp32 scales, for GQA caches: E4M3 with one scale for a tensor, a head or so many
// neighbours, INT8 with one for each (token, head). bf16 in and out, of any alignment. Sizes that do not fit
// each other are bugs of the caller (CISTERN_CHECK); bytes of any value are not.
//
// An infinite or NaN value makes amax useless: its group's scale is then infinite, all finite values become 0
// and nothing says so. Who may meet such values looks first: AllFinite, or CompressPart, which refuses.

using Bf16Span = absl::Span<const std::byte>;  // 2 bytes an element.
using Bf16Out = absl::Span<std::byte>;

bool AllFinite(Bf16Span values);
float AmaxOf(Bf16Span values);

// One scale for all, given (a calibrated k_scale) or made from amax and returned.
void EncodeE4m3PerTensor(Bf16Span values, float scale, absl::Span<uint8_t> codes);
float EncodeE4m3PerTensor(Bf16Span values, absl::Span<uint8_t> codes);
void DecodeE4m3PerTensor(absl::Span<const uint8_t> codes, float scale, Bf16Out values);

// shapes: values and codes [tokens, heads, elements]; scales [heads].
void EncodeE4m3PerHead(Bf16Span values, size_t elements, absl::Span<uint8_t> codes, absl::Span<float> scales);
void DecodeE4m3PerHead(absl::Span<const uint8_t> codes, size_t elements, absl::Span<const float> scales,
                       Bf16Out values);

// One scale for each `group` neighbours: 128 in MLA rows, the head's size for (token, head). The last group
// may be shorter. scales [ceil(n / group)].
void EncodeE4m3Groups(Bf16Span values, size_t group, absl::Span<uint8_t> codes, absl::Span<float> scales);
void DecodeE4m3Groups(absl::Span<const uint8_t> codes, size_t group, absl::Span<const float> scales,
                      Bf16Out values);
void EncodeInt8Groups(Bf16Span values, size_t group, absl::Span<int8_t> codes, absl::Span<float> scales);
void DecodeInt8Groups(absl::Span<const int8_t> codes, size_t group, absl::Span<const float> scales,
                      Bf16Out values);

}  // namespace cistern
