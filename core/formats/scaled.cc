#include "core/formats/scaled.h"

#include <algorithm>

#include "core/check.h"
#include "core/formats/bf16.h"
#include "core/formats/kernels.h"
#include "core/formats/scale_rule.h"

namespace cistern {
namespace {

constexpr size_t kBf16Bytes = sizeof(uint16_t);

// Calls visit(first element, elements, index) for each group.
template <typename Visit>
void ForGroups(size_t n, size_t group, size_t groups, const Visit& visit) {
  CISTERN_CHECK(group > 0);
  CISTERN_CHECK(groups == (n + group - 1) / group);
  for (size_t i = 0, index = 0; i < n; i += group, ++index) visit(i, std::min(group, n - i), index);
}

// Calls encode(from, first element, elements, scale) for each group.
template <typename Scale, typename Encode>
void EncodeGroups(Bf16Span values, size_t group, absl::Span<float> scales, const Scale& scale_of,
                  const Encode& encode) {
  const FormatKernels& kernels = Kernels();
  ForGroups(values.size() / kBf16Bytes, group, scales.size(), [&](size_t at, size_t n, size_t index) {
    const std::byte* from = &values[at * kBf16Bytes];
    scales[index] = scale_of(Bf16ToFloat(kernels.amax(from, n)));
    PrefetchBehind(from, n * kBf16Bytes);
    encode(from, at, n, scales[index]);
  });
}

// Calls visit(first element, head) for each (token, head).
template <typename Visit>
void ForHeads(size_t n, size_t elements, size_t heads, const Visit& visit) {
  CISTERN_CHECK(elements > 0 && heads > 0);
  CISTERN_CHECK(n % (elements * heads) == 0);
  for (size_t i = 0, row = 0; i < n; i += elements, ++row) visit(i, row % heads);
}

}  // namespace

bool AllFinite(Bf16Span values) {
  return Kernels().amax(values.data(), values.size() / kBf16Bytes) < kBf16Infinity;
}

float AmaxOf(Bf16Span values) {
  return Bf16ToFloat(Kernels().amax(values.data(), values.size() / kBf16Bytes));
}

void EncodeE4m3PerTensor(Bf16Span values, float scale, absl::Span<uint8_t> codes) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  Kernels().e4m3_encode(values.data(), codes.size(), scale, codes.data());
}

float EncodeE4m3PerTensor(Bf16Span values, absl::Span<uint8_t> codes) {
  const float scale = E4m3Scale(AmaxOf(values));
  EncodeE4m3PerTensor(values, scale, codes);
  return scale;
}

void DecodeE4m3PerTensor(absl::Span<const uint8_t> codes, float scale, Bf16Out values) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  Kernels().e4m3_decode(codes.data(), codes.size(), scale, values.data());
}

void EncodeE4m3PerHead(Bf16Span values, size_t elements, absl::Span<uint8_t> codes,
                       absl::Span<float> scales) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  std::fill(scales.begin(), scales.end(), 0.0F);
  ForHeads(codes.size(), elements, scales.size(), [&](size_t at, size_t head) {
    const float amax = AmaxOf(values.subspan(at * kBf16Bytes, elements * kBf16Bytes));
    scales[head] = amax <= scales[head] ? scales[head] : amax;  // A NaN stays.
  });
  for (float& scale : scales) scale = E4m3Scale(scale);
  ForHeads(codes.size(), elements, scales.size(), [&](size_t at, size_t head) {
    Kernels().e4m3_encode(&values[at * kBf16Bytes], elements, scales[head], &codes[at]);
  });
}

void DecodeE4m3PerHead(absl::Span<const uint8_t> codes, size_t elements, absl::Span<const float> scales,
                       Bf16Out values) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  ForHeads(codes.size(), elements, scales.size(), [&](size_t at, size_t head) {
    Kernels().e4m3_decode(&codes[at], elements, scales[head], &values[at * kBf16Bytes]);
  });
}

void EncodeE4m3Groups(Bf16Span values, size_t group, absl::Span<uint8_t> codes, absl::Span<float> scales) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  EncodeGroups(values, group, scales, E4m3Scale,
               [&](const std::byte* from, size_t at, size_t n, float scale) {
                 Kernels().e4m3_encode(from, n, scale, &codes[at]);
               });
}

void DecodeE4m3Groups(absl::Span<const uint8_t> codes, size_t group, absl::Span<const float> scales,
                      Bf16Out values) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  const FormatKernels& kernels = Kernels();
  ForGroups(codes.size(), group, scales.size(), [&](size_t at, size_t n, size_t index) {
    kernels.e4m3_decode(&codes[at], n, scales[index], &values[at * kBf16Bytes]);
  });
}

void EncodeInt8Groups(Bf16Span values, size_t group, absl::Span<int8_t> codes, absl::Span<float> scales) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  EncodeGroups(values, group, scales, Int8Scale,
               [&](const std::byte* from, size_t at, size_t n, float scale) {
                 Kernels().int8_encode(from, n, scale, &codes[at]);
               });
}

void DecodeInt8Groups(absl::Span<const int8_t> codes, size_t group, absl::Span<const float> scales,
                      Bf16Out values) {
  CISTERN_CHECK(values.size() == codes.size() * kBf16Bytes);
  const FormatKernels& kernels = Kernels();
  ForGroups(codes.size(), group, scales.size(), [&](size_t at, size_t n, size_t index) {
    kernels.int8_decode(&codes[at], n, scales[index], &values[at * kBf16Bytes]);
  });
}

}  // namespace cistern
