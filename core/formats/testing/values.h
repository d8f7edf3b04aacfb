#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/formats/bf16.h"
#include "core/random.h"

namespace cistern {

// bf16 values as caches have them: roughly normal around 0, of a few magnitudes, with some zeros and
// outliers.
inline std::vector<uint16_t> CacheValues(Random& random, size_t n) {
  std::vector<uint16_t> out(n);
  for (uint16_t& value : out) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random.Unit();
    if (random.Chance(0.02)) sum *= 30;
    if (random.Chance(0.02)) sum = 0;
    value = FloatToBf16(static_cast<float>(sum * std::ldexp(1.0, static_cast<int>(random.Below(8)) - 4)));
  }
  return out;
}

// The bytes of `values` at an odd address inside `memory`: formats take any alignment.
inline const std::byte* AtOddAddress(const std::vector<uint16_t>& values, std::vector<std::byte>& memory) {
  memory.resize(values.size() * 2 + 1);
  if (!values.empty()) std::memcpy(memory.data() + 1, values.data(), values.size() * 2);
  return memory.data() + 1;
}

inline double AmaxOfRange(const std::vector<uint16_t>& values, size_t at, size_t n) {
  double amax = 0;
  for (size_t i = at; i < at + n; ++i) amax = std::max(amax, std::fabs(double{Bf16ToFloat(values[i])}));
  return amax;
}

}  // namespace cistern
