#pragma once

// AVX-512 by way of SIMDe, for the one test that runs kernels_avx512.cc without the hardware. Never shipped.
// What Debian 12's SIMDe lacks is spelled out below, lane by lane, as Intel's guide has it.
#pragma GCC diagnostic ignored \
    "-Wignored-attributes"                // Registers as template arguments; no attribute matters here.
#pragma GCC diagnostic ignored "-Wpsabi"  // Nothing here is called from elsewhere.
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

using __mmask16 = simde__mmask16;
using __mmask32 = simde__mmask32;

namespace cistern::emulated {

template <typename Element, typename Register>
struct LanesOf {
  static constexpr int kCount = sizeof(Register) / sizeof(Element);
  Element at[kCount];
  explicit LanesOf(const Register& value) { std::memcpy(at, &value, sizeof(at)); }
  LanesOf() = default;
  Register Value() const {
    Register value;
    std::memcpy(&value, at, sizeof(at));
    return value;
  }
};

template <typename Element, typename Register>
Register LoadMasked(uint64_t mask, const void* from) {
  LanesOf<Element, Register> out;
  for (int i = 0; i < out.kCount; ++i) {
    out.at[i] = 0;
    if ((mask >> i & 1) != 0)
      std::memcpy(&out.at[i], static_cast<const char*>(from) + i * sizeof(Element), sizeof(Element));
  }
  return out.Value();
}

template <typename Element, typename Register>
void StoreMasked(void* to, uint64_t mask, const Register& value) {
  const LanesOf<Element, Register> lanes(value);
  for (int i = 0; i < lanes.kCount; ++i) {
    if ((mask >> i & 1) != 0)
      std::memcpy(static_cast<char*>(to) + i * sizeof(Element), &lanes.at[i], sizeof(Element));
  }
}

// Lane by lane from one element type to another.
template <typename From, typename To, typename Out, typename In>
Out Convert(const In& value) {
  const LanesOf<From, In> in(value);
  LanesOf<To, Out> out;
  static_assert(in.kCount == out.kCount);
  for (int i = 0; i < out.kCount; ++i) {
    if constexpr (std::is_floating_point_v<From>) {
      out.at[i] = static_cast<To>(std::nearbyint(in.at[i]));
    } else {
      out.at[i] = static_cast<To>(in.at[i]);
    }
  }
  return out.Value();
}

inline __m512 HalfToFloat(const __m256i& value) {
  const LanesOf<__m128i, __m256i> half(value);
  LanesOf<__m256, __m512> out;
  for (int i = 0; i < 2; ++i) out.at[i] = _mm256_cvtph_ps(half.at[i]);
  return out.Value();
}

inline uint32_t EqualMask(const __m512i& a, const __m512i& b) {
  const LanesOf<int16_t, __m512i> x(a), y(b);
  uint32_t mask = 0;
  for (int i = 0; i < 32; ++i) mask |= uint32_t{x.at[i] == y.at[i]} << i;
  return mask;
}

}  // namespace cistern::emulated

#define CISTERN_EMULATED ::cistern::emulated
#define _mm512_maskz_loadu_epi16(mask, from) CISTERN_EMULATED::LoadMasked<int16_t, __m512i>(mask, from)
#define _mm512_mask_storeu_epi16(to, mask, value) CISTERN_EMULATED::StoreMasked<int16_t>(to, mask, value)
#define _mm256_maskz_loadu_epi8(mask, from) CISTERN_EMULATED::LoadMasked<int8_t, __m256i>(mask, from)
#define _mm256_mask_storeu_epi8(to, mask, value) CISTERN_EMULATED::StoreMasked<int8_t>(to, mask, value)
#define _mm512_cvtepi32_epi16(value) CISTERN_EMULATED::Convert<int32_t, int16_t, __m256i>(value)
#define _mm512_cvtepi8_epi32(value) CISTERN_EMULATED::Convert<int8_t, int32_t, __m512i>(value)
#define _mm512_cvtepu16_epi32(value) CISTERN_EMULATED::Convert<uint16_t, uint32_t, __m512i>(value)
#define _mm512_cvtepi32_ps(value) CISTERN_EMULATED::Convert<int32_t, float, __m512>(value)
#define _mm512_cvtps_epi32(value) CISTERN_EMULATED::Convert<float, int32_t, __m512i>(value)
#define _mm512_cvtph_ps(value) CISTERN_EMULATED::HalfToFloat(value)
#define _mm512_cmpeq_epi16_mask(a, b) CISTERN_EMULATED::EqualMask(a, b)
