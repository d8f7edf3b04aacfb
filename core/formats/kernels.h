#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern {

// Bulk conversions between bf16 and 8-bit elements with one scale. Each exists as scalar code, which says
// what is right, and with wider instructions, which give the same bytes for every input (kernels_test.cc).
//
// units:  n is elements. bf16 and float arrays are plain little-endian memory of any alignment.
// thread: any; no state. `from` and `to` may not overlap.
// errors: none; rounding and what happens to infinity, NaN and odd scales is said at the scalar code.
struct FormatKernels {
  const char* name;
  // The largest magnitude as bf16 bits; kBf16Infinity or above when a value is infinite or NaN; 0 for none.
  uint16_t (*amax)(const void* bf16, size_t n);
  // to[i] = FloatToE4m3(float(from[i]) / scale), the division in fp32.
  void (*e4m3_encode)(const void* bf16, size_t n, float scale, uint8_t* to);
  // to[i] = FloatToBf16(E4m3ToFloat(from[i]) * scale), the product in fp32.
  void (*e4m3_decode)(const uint8_t* from, size_t n, float scale, void* bf16);
  // to[i] = from[i] / scale in fp32, nearest integer, ties to even, within +-127; a NaN becomes 0.
  void (*int8_encode)(const void* bf16, size_t n, float scale, int8_t* to);
  void (*int8_decode)(const int8_t* from, size_t n, float scale, void* bf16);
  void (*bf16_from_float)(const void* from, size_t n, void* bf16);
  void (*float_from_bf16)(const void* bf16, size_t n, void* to);
};

// The one place of choice: the widest that this CPU and operating system have.
const FormatKernels& Kernels();

// For tests and benchmarks; nullptr where this CPU lacks the instructions.
const FormatKernels& ScalarKernels();
const FormatKernels* Avx2Kernels();
const FormatKernels* Avx512Kernels();

// Outside of these a scale is left to the scalar code: fast paths multiply by 2^8 * scale, or by 1 / scale.
inline constexpr float kPlainScaleMin = 0x1p-126F;
inline constexpr float kPlainScaleMax = 0x1p100F;

// Asks for what lies kAmaxPrefetchBytes behind `at`, while a group is converted whose largest value has been
// looked for: that search has to wait for memory, and nothing else would keep memory busy until the next one.
inline constexpr size_t kAmaxPrefetchBytes = 2048;
inline void PrefetchBehind(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + kAmaxPrefetchBytes + i);
}

}  // namespace cistern
