#include "core/formats/kernels.h"

// CISTERN_FORMATS_EMULATED: this source over SIMDe, which spells each instruction out in C, so that tests
// check it to the last bit on machines without AVX-512 too (avx512_emulation_test.cc).
#if defined(CISTERN_FORMATS_EMULATED)
#define CISTERN_AVX512
#elif defined(__x86_64__)
#include <immintrin.h>
// GCC 12's own headers start registers from themselves and are warned about where they are inlined (PR
// 105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#define CISTERN_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c")))
#endif

#if defined(CISTERN_AVX512)
#include <algorithm>
#include <bit>

#define CISTERN_AVX512_INLINE CISTERN_AVX512 __attribute__((always_inline)) inline

namespace cistern {
namespace {

constexpr size_t kLanes = 32;  // bf16 a register.

CISTERN_AVX512_INLINE __mmask32 Lanes(size_t n) {
  return n >= kLanes ? ~uint32_t{0} : (uint32_t{1} << n) - 1;
}
CISTERN_AVX512_INLINE __m512i LoadBf16(const void* from, size_t i, __mmask32 lanes) {
  return _mm512_maskz_loadu_epi16(lanes, static_cast<const std::byte*>(from) + i * 2);
}
CISTERN_AVX512_INLINE void StoreBf16(void* to, size_t i, __mmask32 lanes, __m512i value) {
  _mm512_mask_storeu_epi16(static_cast<std::byte*>(to) + i * 2, lanes, value);
}

struct Floats {  // Of 32 bf16, in the order that packs within quarters want them back.
  __m512 low, high;
};
CISTERN_AVX512_INLINE Floats Widen(__m512i bf16) {
  const __m512i zero = _mm512_setzero_si512();
  return {_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, bf16)),
          _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, bf16))};
}

// value / scale; a power of two is multiplied by its inverse, which is the same to the last bit.
template <bool kPowerOfTwo>
CISTERN_AVX512_INLINE __m512 Scaled(__m512 value, __m512 scale) {
  return kPowerOfTwo ? _mm512_mul_ps(value, scale) : _mm512_div_ps(value, scale);
}

// Magnitude codes of E4M3 in 32-bit lanes; why it rounds is said in kernels_avx2.cc.
CISTERN_AVX512_INLINE __m512i E4m3Magnitudes(__m512 value) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
  const __m512i most = _mm512_min_epi32(bits, _mm512_set1_epi32(0x43e00000));  // 448.
  const __m512i exponent =
      _mm512_max_epi32(_mm512_and_si512(most, _mm512_set1_epi32(0x7f800000)), _mm512_set1_epi32(121 << 23));
  const __m512i c = _mm512_add_epi32(exponent, _mm512_set1_epi32(20 << 23));
  const __m512i sum = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(most), _mm512_castsi512_ps(c)));
  const __m512i base = _mm512_sub_epi32(_mm512_srli_epi32(exponent, 20), _mm512_set1_epi32(121 << 3));
  const __m512i codes = _mm512_add_epi32(_mm512_sub_epi32(sum, c), base);
  return _mm512_mask_mov_epi32(codes, nan, _mm512_set1_epi32(0x7f));
}

template <bool kPowerOfTwo>
CISTERN_AVX512_INLINE __m512i Int8Lanes(__m512 value, __m512 scale) {
  const __m512 y = Scaled<kPowerOfTwo>(value, scale);
  const __mmask16 number = _mm512_cmp_ps_mask(y, y, _CMP_ORD_Q);
  const __m512 near = _mm512_min_ps(_mm512_max_ps(y, _mm512_set1_ps(-127)), _mm512_set1_ps(127));
  return _mm512_cvtps_epi32(_mm512_maskz_mov_ps(number, near));
}

template <bool kPowerOfTwo>
CISTERN_AVX512 void E4m3EncodeWide(const void* bf16, size_t n, float scale, uint8_t* to) {
  const __m512 by = _mm512_set1_ps(scale);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask32 lanes = Lanes(n - i);
    const __m512i bits = LoadBf16(bf16, i, lanes);
    const Floats x = Widen(bits);
    const __m512i magnitudes = _mm512_packus_epi32(E4m3Magnitudes(Scaled<kPowerOfTwo>(x.low, by)),
                                                   E4m3Magnitudes(Scaled<kPowerOfTwo>(x.high, by)));
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi16(bits, 8), _mm512_set1_epi16(0x80));
    _mm256_mask_storeu_epi8(to + i, lanes, _mm512_cvtepi16_epi8(_mm512_or_si512(magnitudes, sign)));
  }
}

template <bool kPowerOfTwo>
CISTERN_AVX512 void Int8EncodeWide(const void* bf16, size_t n, float scale, int8_t* to) {
  const __m512 by = _mm512_set1_ps(scale);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask32 lanes = Lanes(n - i);
    const Floats x = Widen(LoadBf16(bf16, i, lanes));
    const __m512i codes =
        _mm512_packs_epi32(Int8Lanes<kPowerOfTwo>(x.low, by), Int8Lanes<kPowerOfTwo>(x.high, by));
    _mm256_mask_storeu_epi8(to + i, lanes, _mm512_cvtepi16_epi8(codes));
  }
}

// Nearest bf16, ties to even, in the low half of each lane. Not for NaN.
CISTERN_AVX512_INLINE __m512i Narrow(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
}
CISTERN_AVX512_INLINE __m512i Join(__m512i first16, __m512i last16) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first16)),
                            _mm512_cvtepi32_epi16(last16), 1);
}

bool IsPlain(float scale) { return scale >= kPlainScaleMin && scale <= kPlainScaleMax; }
bool IsPowerOfTwo(float scale) { return (std::bit_cast<uint32_t>(scale) & 0x7fffff) == 0; }

CISTERN_AVX512 uint16_t Amax(const void* bf16, size_t n) {
  const __m512i mask = _mm512_set1_epi16(0x7fff);
  __m512i max = _mm512_setzero_si512();
  for (size_t i = 0; i < n; i += kLanes) {
    max = _mm512_max_epu16(max, _mm512_and_si512(LoadBf16(bf16, i, Lanes(n - i)), mask));
  }
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(max), _mm512_extracti64x4_epi64(max, 1));
  const __m128i quarter = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  // The smallest of the complements is the complement of the largest.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
  return static_cast<uint16_t>(~_mm_extract_epi16(least, 0));
}

void E4m3Encode(const void* bf16, size_t n, float scale, uint8_t* to) {
  if (!IsPlain(scale)) return ScalarKernels().e4m3_encode(bf16, n, scale, to);
  return IsPowerOfTwo(scale) ? E4m3EncodeWide<true>(bf16, n, 1 / scale, to)
                             : E4m3EncodeWide<false>(bf16, n, scale, to);
}

void Int8Encode(const void* bf16, size_t n, float scale, int8_t* to) {
  if (!IsPlain(scale)) return ScalarKernels().int8_encode(bf16, n, scale, to);
  return IsPowerOfTwo(scale) ? Int8EncodeWide<true>(bf16, n, 1 / scale, to)
                             : Int8EncodeWide<false>(bf16, n, scale, to);
}

// The bits of an E4M3 code, put where a half has its exponent and mantissa, are its value times 2^-8.
CISTERN_AVX512 void E4m3Decode(const uint8_t* from, size_t n, float scale, void* bf16) {
  if (!IsPlain(scale)) return ScalarKernels().e4m3_decode(from, n, scale, bf16);
  const __m512 by = _mm512_set1_ps(scale * 256);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask32 lanes = Lanes(n - i);
    const __m512i code = _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(lanes, from + i));
    const __m512i half =
        _mm512_and_si512(_mm512_slli_epi16(code, 7), _mm512_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m512 first = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), by);
    const __m512 last = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), by);
    const __mmask32 nan =
        _mm512_cmpeq_epi16_mask(_mm512_and_si512(code, _mm512_set1_epi16(0x7f)), _mm512_set1_epi16(0x7f));
    const __m512i nan_bits = _mm512_or_si512(
        _mm512_and_si512(code, _mm512_set1_epi16(static_cast<int16_t>(0x8000))), _mm512_set1_epi16(0x7fc0));
    StoreBf16(bf16, i, lanes, _mm512_mask_mov_epi16(Join(Narrow(first), Narrow(last)), nan, nan_bits));
  }
}

CISTERN_AVX512 void Int8Decode(const int8_t* from, size_t n, float scale, void* bf16) {
  if (!IsPlain(scale)) return ScalarKernels().int8_decode(from, n, scale, bf16);
  const __m512 by = _mm512_set1_ps(scale);
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask32 lanes = Lanes(n - i);
    const __m256i codes = _mm256_maskz_loadu_epi8(lanes, from + i);
    const __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes)));
    const __m512 last = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1)));
    StoreBf16(bf16, i, lanes, Join(Narrow(_mm512_mul_ps(first, by)), Narrow(_mm512_mul_ps(last, by))));
  }
}

CISTERN_AVX512_INLINE __m512i NarrowAny(__m512 value) {
  const __m512i quiet =
      _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(value), 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(Narrow(value), _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet);
}

CISTERN_AVX512 void Bf16FromFloat(const void* from, size_t n, void* bf16) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto* at = static_cast<const std::byte*>(from) + i * 4;
    const __m512i first = NarrowAny(_mm512_castsi512_ps(_mm512_loadu_si512(at)));
    const __m512i last = NarrowAny(_mm512_castsi512_ps(_mm512_loadu_si512(at + 64)));
    StoreBf16(bf16, i, Lanes(kLanes), Join(first, last));
  }
  ScalarKernels().bf16_from_float(static_cast<const std::byte*>(from) + i * 4, n - i,
                                  static_cast<std::byte*>(bf16) + i * 2);
}

CISTERN_AVX512 void FloatFromBf16(const void* bf16, size_t n, void* to) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512i x = LoadBf16(bf16, i, Lanes(kLanes));
    auto* at = static_cast<std::byte*>(to) + i * 4;
    const __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(x));
    const __m512i last = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1));
    _mm512_storeu_si512(at, _mm512_slli_epi32(first, 16));
    _mm512_storeu_si512(at + 64, _mm512_slli_epi32(last, 16));
  }
  ScalarKernels().float_from_bf16(static_cast<const std::byte*>(bf16) + i * 2, n - i,
                                  static_cast<std::byte*>(to) + i * 4);
}

constexpr FormatKernels kWideKernels = {.name = "avx512",
                                        .amax = Amax,
                                        .e4m3_encode = E4m3Encode,
                                        .e4m3_decode = E4m3Decode,
                                        .int8_encode = Int8Encode,
                                        .int8_decode = Int8Decode,
                                        .bf16_from_float = Bf16FromFloat,
                                        .float_from_bf16 = FloatFromBf16};

}  // namespace

#if defined(CISTERN_FORMATS_EMULATED)
const FormatKernels& EmulatedAvx512Kernels() { return kWideKernels; }
#else
const FormatKernels* Avx512Kernels() {
  // These also ask whether the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  return wide && Avx2Kernels() != nullptr ? &kWideKernels : nullptr;  // Which has asked for F16C.
}
#endif

}  // namespace cistern

#else

namespace cistern {
const FormatKernels* Avx512Kernels() { return nullptr; }
}  // namespace cistern

#endif
