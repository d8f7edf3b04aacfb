#include "core/formats/int4.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/bytes.h"
#include "core/check.h"
#include "core/formats/bf16.h"
#include "core/formats/e2m1.h"
#include "core/formats/kernels.h"

namespace cistern {
namespace {

constexpr size_t kBf16Bytes = sizeof(uint16_t);

size_t RowGroups(size_t elements) { return (elements + kInt4Group - 1) / kInt4Group; }

float LoadBf16(const uint8_t* at, size_t i) { return Bf16ToFloat(LoadLe<uint16_t>(at + i * kBf16Bytes)); }
void StoreBf16(uint8_t* at, size_t i, float value) { StoreLe(at + i * kBf16Bytes, FloatToBf16(value)); }

// A tile's rows as floats.
std::vector<float> Widen(const void* bf16, size_t n) {
  std::vector<float> out(n);
  Kernels().float_from_bf16(bf16, n, out.data());
  return out;
}

void StoreParams(const Int4Params& params, size_t i, uint8_t* zeros, uint8_t* scales) {
  StoreBf16(zeros, i, params.zero);
  StoreBf16(scales, i, params.scale);
}
std::vector<Int4Params> LoadParams(const uint8_t* zeros, const uint8_t* scales, size_t n) {
  std::vector<Int4Params> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = {LoadBf16(zeros, i), LoadBf16(scales, i)};
  return out;
}

// One row; element e belongs to params[e / share].
void EncodeRow(const float* row, size_t elements, const Int4Params* params, size_t share, uint8_t* to) {
  for (size_t e = 0; e < elements; e += 2) {
    to[e / 2] =
        PackNibbles(FloatToInt4(row[e], params[e / share]), FloatToInt4(row[e + 1], params[(e + 1) / share]));
  }
}
void DecodeRow(const uint8_t* from, size_t elements, const Int4Params* params, size_t share, float* row) {
  for (size_t e = 0; e < elements; ++e) row[e] = Int4ToFloat(NibbleAt(from, e), params[e / share]);
}

}  // namespace

void EncodeInt4Keys(const void* bf16, size_t tokens, size_t elements, uint8_t* to) {
  CISTERN_CHECK(elements % 2 == 0);
  if (tokens == 0) return;
  const std::vector<float> values = Widen(bf16, tokens * elements);
  std::vector<float> min(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(elements)), max = min;
  for (size_t token = 1; token < tokens; ++token) {
    const float* row = &values[token * elements];
    for (size_t e = 0; e < elements; ++e) {
      min[e] = row[e] < min[e] ? row[e] : min[e];
      max[e] = row[e] > max[e] ? row[e] : max[e];
    }
  }
  uint8_t* const zeros = to + tokens * elements / 2;
  std::vector<Int4Params> params(elements);
  for (size_t e = 0; e < elements; ++e) {
    params[e] = Int4RangeBf16(min[e], max[e]);
    StoreParams(params[e], e, zeros, zeros + elements * kBf16Bytes);
  }
  for (size_t token = 0; token < tokens; ++token)
    EncodeRow(&values[token * elements], elements, params.data(), 1, to + token * elements / 2);
}

void DecodeInt4Keys(const uint8_t* from, size_t tokens, size_t elements, void* bf16) {
  CISTERN_CHECK(elements % 2 == 0);
  const uint8_t* const zeros = from + tokens * elements / 2;
  const std::vector<Int4Params> params = LoadParams(zeros, zeros + elements * kBf16Bytes, elements);
  std::vector<float> values(tokens * elements);
  for (size_t token = 0; token < tokens; ++token)
    DecodeRow(from + token * elements / 2, elements, params.data(), 1, &values[token * elements]);
  Kernels().bf16_from_float(values.data(), values.size(), bf16);
}

void EncodeInt4Values(const void* bf16, size_t tokens, size_t elements, uint8_t* to) {
  CISTERN_CHECK(elements % 2 == 0);
  const std::vector<float> values = Widen(bf16, tokens * elements);
  const size_t groups = RowGroups(elements);
  uint8_t* const zeros = to + tokens * elements / 2;
  std::vector<Int4Params> params(groups);
  for (size_t token = 0; token < tokens; ++token) {
    const float* row = &values[token * elements];
    for (size_t group = 0; group < groups; ++group) {
      const size_t end = std::min((group + 1) * kInt4Group, elements);
      const auto [min, max] = std::minmax_element(row + group * kInt4Group, row + end);
      params[group] = Int4RangeBf16(*min, *max);
      StoreParams(params[group], token * groups + group, zeros, zeros + tokens * groups * kBf16Bytes);
    }
    EncodeRow(row, elements, params.data(), kInt4Group, to + token * elements / 2);
  }
}

void DecodeInt4Values(const uint8_t* from, size_t tokens, size_t elements, void* bf16) {
  CISTERN_CHECK(elements % 2 == 0);
  const size_t groups = RowGroups(elements);
  const uint8_t* const zeros = from + tokens * elements / 2;
  const std::vector<Int4Params> params =
      LoadParams(zeros, zeros + tokens * groups * kBf16Bytes, tokens * groups);
  std::vector<float> values(tokens * elements);
  for (size_t token = 0; token < tokens; ++token) {
    DecodeRow(from + token * elements / 2, elements, &params[token * groups], kInt4Group,
              &values[token * elements]);
  }
  Kernels().bf16_from_float(values.data(), values.size(), bf16);
}

}  // namespace cistern
