#include "core/formats/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>

// Per function, not per file: an inline function of a header compiled here with wider instructions could
// otherwise be the copy that the linker keeps for everybody.
#define CISTERN_AVX2 __attribute__((target("avx2,f16c")))
#define CISTERN_AVX2_INLINE CISTERN_AVX2 __attribute__((always_inline)) inline

namespace cistern {
namespace {

constexpr int kInOrder = 0xd8;  // After a pack of two registers: quarters 0, 2, 1, 3.

CISTERN_AVX2_INLINE __m256i Load(const void* from, size_t bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const std::byte*>(from) + bytes));
}
CISTERN_AVX2_INLINE void Store(void* to, size_t bytes, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<std::byte*>(to) + bytes), value);
}

struct Floats {  // Of 16 bf16: elements 0-3 and 8-11, 4-7 and 12-15, as packs want them back.
  __m256 low, high;
};
CISTERN_AVX2_INLINE Floats Widen(__m256i bf16) {
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, bf16)),
          _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, bf16))};
}

// value / scale; a power of two is multiplied by its inverse, which is the same to the last bit.
template <bool kPowerOfTwo>
CISTERN_AVX2_INLINE __m256 Scaled(__m256 value, __m256 scale) {
  return kPowerOfTwo ? _mm256_mul_ps(value, scale) : _mm256_div_ps(value, scale);
}

// Magnitude codes of E4M3 in 32-bit lanes. With c = 2^(e+20), e the value's exponent but at least -6, the sum
// value + c has its last bit at 2^(e-3), one step of E4M3 there: the addition does the rounding.
CISTERN_AVX2_INLINE __m256i E4m3Magnitudes(__m256 value) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7f800000));
  const __m256i most = _mm256_min_epi32(bits, _mm256_set1_epi32(0x43e00000));  // 448.
  const __m256i exponent =
      _mm256_max_epi32(_mm256_and_si256(most, _mm256_set1_epi32(0x7f800000)), _mm256_set1_epi32(121 << 23));
  const __m256i c = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23));
  const __m256i sum = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(most), _mm256_castsi256_ps(c)));
  const __m256i steps = _mm256_sub_epi32(sum, c);
  const __m256i base = _mm256_sub_epi32(_mm256_srli_epi32(exponent, 20), _mm256_set1_epi32(121 << 3));
  // 0x7e, what a NaN has been clamped to, plus one is its code.
  return _mm256_sub_epi32(_mm256_add_epi32(steps, base), nan);
}

template <bool kPowerOfTwo>
CISTERN_AVX2_INLINE __m256i E4m3Codes16(__m256i bf16, __m256 scale) {
  const Floats x = Widen(bf16);
  const __m256i codes = _mm256_packus_epi32(E4m3Magnitudes(Scaled<kPowerOfTwo>(x.low, scale)),
                                            E4m3Magnitudes(Scaled<kPowerOfTwo>(x.high, scale)));
  return _mm256_or_si256(codes, _mm256_and_si256(_mm256_srli_epi16(bf16, 8), _mm256_set1_epi16(0x80)));
}

template <bool kPowerOfTwo>
CISTERN_AVX2_INLINE __m256i Int8Lanes(__m256 value, __m256 scale) {
  const __m256 y = Scaled<kPowerOfTwo>(value, scale);
  const __m256 number = _mm256_cmp_ps(y, y, _CMP_ORD_Q);
  const __m256 near = _mm256_min_ps(_mm256_max_ps(y, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
  return _mm256_cvtps_epi32(_mm256_and_ps(near, number));
}

template <bool kPowerOfTwo>
CISTERN_AVX2_INLINE __m256i Int8Codes16(__m256i bf16, __m256 scale) {
  const Floats x = Widen(bf16);
  return _mm256_packs_epi32(Int8Lanes<kPowerOfTwo>(x.low, scale), Int8Lanes<kPowerOfTwo>(x.high, scale));
}

template <bool kPowerOfTwo>
CISTERN_AVX2 size_t E4m3EncodeWide(const void* bf16, size_t n, float scale, uint8_t* to) {
  const __m256 by = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i a = E4m3Codes16<kPowerOfTwo>(Load(bf16, i * 2), by);
    const __m256i b = E4m3Codes16<kPowerOfTwo>(Load(bf16, i * 2 + 32), by);
    Store(to, i, _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), kInOrder));
  }
  return i;
}

template <bool kPowerOfTwo>
CISTERN_AVX2 size_t Int8EncodeWide(const void* bf16, size_t n, float scale, int8_t* to) {
  const __m256 by = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i a = Int8Codes16<kPowerOfTwo>(Load(bf16, i * 2), by);
    const __m256i b = Int8Codes16<kPowerOfTwo>(Load(bf16, i * 2 + 32), by);
    Store(to, i, _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), kInOrder));
  }
  return i;
}

// Nearest bf16, ties to even, in the low half of each lane. Not for NaN.
CISTERN_AVX2_INLINE __m256i Narrow(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}
CISTERN_AVX2_INLINE __m256i NarrowBoth(__m256 first8, __m256 last8) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(Narrow(first8), Narrow(last8)), kInOrder);
}

bool IsPlain(float scale) { return scale >= kPlainScaleMin && scale <= kPlainScaleMax; }
bool IsPowerOfTwo(float scale) { return (std::bit_cast<uint32_t>(scale) & 0x7fffff) == 0; }

CISTERN_AVX2 uint16_t Amax(const void* bf16, size_t n) {
  const __m256i mask = _mm256_set1_epi16(0x7fff);
  __m256i a = _mm256_setzero_si256(), b = a;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = _mm256_max_epu16(a, _mm256_and_si256(Load(bf16, i * 2), mask));
    b = _mm256_max_epu16(b, _mm256_and_si256(Load(bf16, i * 2 + 32), mask));
  }
  const __m256i both = _mm256_max_epu16(a, b);
  const __m128i max = _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  // The smallest of the complements is the complement of the largest.
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(max, _mm_set1_epi16(-1)));
  const auto wide = static_cast<uint16_t>(~_mm_extract_epi16(least, 0));
  if (i == n) return wide;
  return std::max(wide, ScalarKernels().amax(static_cast<const std::byte*>(bf16) + i * 2, n - i));
}

void E4m3Encode(const void* bf16, size_t n, float scale, uint8_t* to) {
  size_t done = 0;
  if (IsPlain(scale)) {
    done = IsPowerOfTwo(scale) ? E4m3EncodeWide<true>(bf16, n, 1 / scale, to)
                               : E4m3EncodeWide<false>(bf16, n, scale, to);
  }
  if (done == n) return;
  ScalarKernels().e4m3_encode(static_cast<const std::byte*>(bf16) + done * 2, n - done, scale, to + done);
}

void Int8Encode(const void* bf16, size_t n, float scale, int8_t* to) {
  size_t done = 0;
  if (IsPlain(scale)) {
    done = IsPowerOfTwo(scale) ? Int8EncodeWide<true>(bf16, n, 1 / scale, to)
                               : Int8EncodeWide<false>(bf16, n, scale, to);
  }
  if (done == n) return;
  ScalarKernels().int8_encode(static_cast<const std::byte*>(bf16) + done * 2, n - done, scale, to + done);
}

// The bits of an E4M3 code, put where a half has its exponent and mantissa, are its value times 2^-8.
CISTERN_AVX2 size_t E4m3DecodeWide(const uint8_t* from, size_t n, float scale, void* bf16) {
  const __m256 by = _mm256_set1_ps(scale * 256);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    const __m256i half =
        _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    const __m256 first = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), by);
    const __m256 last = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), by);
    const __m256i nan =
        _mm256_cmpeq_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7f));
    // Sign, exponent and quiet bit; lanes that hold a number are not touched.
    const __m256i nan_bits = _mm256_or_si256(
        _mm256_and_si256(code, _mm256_set1_epi16(static_cast<int16_t>(0x8000))), _mm256_set1_epi16(0x7fc0));
    Store(bf16, i * 2, _mm256_blendv_epi8(NarrowBoth(first, last), nan_bits, nan));
  }
  return i;
}

CISTERN_AVX2 size_t Int8DecodeWide(const int8_t* from, size_t n, float scale, void* bf16) {
  const __m256 by = _mm256_set1_ps(scale);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256 first = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const __m256 last = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)));
    Store(bf16, i * 2, NarrowBoth(_mm256_mul_ps(first, by), _mm256_mul_ps(last, by)));
  }
  return i;
}

void E4m3Decode(const uint8_t* from, size_t n, float scale, void* bf16) {
  const size_t done = IsPlain(scale) ? E4m3DecodeWide(from, n, scale, bf16) : 0;
  if (done == n) return;
  ScalarKernels().e4m3_decode(from + done, n - done, scale, static_cast<std::byte*>(bf16) + done * 2);
}
void Int8Decode(const int8_t* from, size_t n, float scale, void* bf16) {
  const size_t done = IsPlain(scale) ? Int8DecodeWide(from, n, scale, bf16) : 0;
  if (done == n) return;
  ScalarKernels().int8_decode(from + done, n - done, scale, static_cast<std::byte*>(bf16) + done * 2);
}

CISTERN_AVX2_INLINE __m256i NarrowAny(__m256 value) {
  const __m256i quiet =
      _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(value), 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(Narrow(value), quiet, nan);
}

CISTERN_AVX2 void Bf16FromFloat(const void* from, size_t n, void* bf16) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 first = _mm256_castsi256_ps(Load(from, i * 4));
    const __m256 last = _mm256_castsi256_ps(Load(from, i * 4 + 32));
    Store(bf16, i * 2,
          _mm256_permute4x64_epi64(_mm256_packus_epi32(NarrowAny(first), NarrowAny(last)), kInOrder));
  }
  ScalarKernels().bf16_from_float(static_cast<const std::byte*>(from) + i * 4, n - i,
                                  static_cast<std::byte*>(bf16) + i * 2);
}

CISTERN_AVX2 void FloatFromBf16(const void* bf16, size_t n, void* to) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i x = Load(bf16, i * 2);
    const __m256i first = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x));
    const __m256i last = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1));
    Store(to, i * 4, _mm256_slli_epi32(first, 16));
    Store(to, i * 4 + 32, _mm256_slli_epi32(last, 16));
  }
  ScalarKernels().float_from_bf16(static_cast<const std::byte*>(bf16) + i * 2, n - i,
                                  static_cast<std::byte*>(to) + i * 4);
}

}  // namespace

const FormatKernels* Avx2Kernels() {
  static constexpr FormatKernels kKernels = {.name = "avx2",
                                             .amax = Amax,
                                             .e4m3_encode = E4m3Encode,
                                             .e4m3_decode = E4m3Decode,
                                             .int8_encode = Int8Encode,
                                             .int8_decode = Int8Decode,
                                             .bf16_from_float = Bf16FromFloat,
                                             .float_from_bf16 = FloatFromBf16};
  // This also asks whether the operating system saves the wide registers; clang does not know "f16c" here.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return nullptr;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 ? &kKernels : nullptr;
}

}  // namespace cistern

#else

namespace cistern {
const FormatKernels* Avx2Kernels() { return nullptr; }
}  // namespace cistern

#endif
