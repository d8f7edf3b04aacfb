#include "core/formats/kernels.h"

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/formats/bf16.h"
#include "core/formats/e4m3.h"

namespace cistern {
namespace {

uint16_t LoadBf16(const void* bf16, size_t i) {
  return LoadLe<uint16_t>(static_cast<const std::byte*>(bf16) + i * sizeof(uint16_t));
}
void StoreBf16(void* bf16, size_t i, float value) {
  StoreLe<uint16_t>(static_cast<std::byte*>(bf16) + i * sizeof(uint16_t), FloatToBf16(value));
}

uint16_t Amax(const void* bf16, size_t n) {
  uint16_t max = 0;
  for (size_t i = 0; i < n; ++i)
    max = std::max(max, static_cast<uint16_t>(LoadBf16(bf16, i) & kBf16MagnitudeMask));
  return max;
}

void E4m3Encode(const void* bf16, size_t n, float scale, uint8_t* to) {
  for (size_t i = 0; i < n; ++i) to[i] = FloatToE4m3(Bf16ToFloat(LoadBf16(bf16, i)) / scale);
}

void E4m3Decode(const uint8_t* from, size_t n, float scale, void* bf16) {
  for (size_t i = 0; i < n; ++i) StoreBf16(bf16, i, E4m3ToFloat(from[i]) * scale);
}

void Int8Encode(const void* bf16, size_t n, float scale, int8_t* to) {
  for (size_t i = 0; i < n; ++i) {
    const float value = Bf16ToFloat(LoadBf16(bf16, i)) / scale;
    // Adding and taking away 1.5 * 2^23 leaves the nearest integer, ties to even.
    const float near = std::clamp(value, -127.0F, 127.0F) + 0x1.8p23F - 0x1.8p23F;
    to[i] = std::isnan(value) ? int8_t{0} : static_cast<int8_t>(near);
  }
}

void Int8Decode(const int8_t* from, size_t n, float scale, void* bf16) {
  for (size_t i = 0; i < n; ++i) StoreBf16(bf16, i, static_cast<float>(from[i]) * scale);
}

void Bf16FromFloat(const void* from, size_t n, void* bf16) {
  for (size_t i = 0; i < n; ++i)
    StoreBf16(bf16, i, LoadLe<float>(static_cast<const std::byte*>(from) + i * sizeof(float)));
}

void FloatFromBf16(const void* bf16, size_t n, void* to) {
  for (size_t i = 0; i < n; ++i)
    StoreLe<float>(static_cast<std::byte*>(to) + i * sizeof(float), Bf16ToFloat(LoadBf16(bf16, i)));
}

}  // namespace

const FormatKernels& ScalarKernels() {
  static constexpr FormatKernels kKernels = {.name = "scalar",
                                             .amax = Amax,
                                             .e4m3_encode = E4m3Encode,
                                             .e4m3_decode = E4m3Decode,
                                             .int8_encode = Int8Encode,
                                             .int8_decode = Int8Decode,
                                             .bf16_from_float = Bf16FromFloat,
                                             .float_from_bf16 = FloatFromBf16};
  return kKernels;
}

const FormatKernels& Kernels() {
  static const FormatKernels& chosen = []() -> const FormatKernels& {
    if (const FormatKernels* wide = Avx512Kernels()) return *wide;
    if (const FormatKernels* wide = Avx2Kernels()) return *wide;
    return ScalarKernels();
  }();
  return chosen;
}

}  // namespace cistern
