#include "core/formats/index_keys.h"

#include <array>

#include "core/bytes.h"
#include "core/formats/bf16.h"
#include "core/formats/e4m3.h"
#include "core/formats/kernels.h"
#include "core/formats/scale_rule.h"

namespace cistern {
namespace {

constexpr size_t kPacked = kIndexElements / 2;
constexpr size_t kFp4Scales = kIndexElements / kMxfp4Block;

}  // namespace

void EncodeIndexFp8Tile(const void* bf16, size_t rows, IndexScale rule, uint8_t* tile) {
  const auto* from = static_cast<const std::byte*>(bf16);
  for (size_t row = 0; row < rows; ++row, from += kIndexElements * sizeof(uint16_t)) {
    const float amax = Bf16ToFloat(Kernels().amax(from, kIndexElements));
    const float scale = rule == IndexScale::kFp32 ? E4m3IndexScale(amax) : Ue8m0ToFloat(E4m3Pow2Scale(amax));
    Kernels().e4m3_encode(from, kIndexElements, scale, tile + row * kIndexElements);
    StoreLe(tile + rows * kIndexElements + row * sizeof(float), scale);
  }
}

void DecodeIndexFp8Tile(const uint8_t* tile, size_t rows, float* values) {
  for (size_t row = 0; row < rows; ++row) {
    const auto scale = LoadLe<float>(tile + rows * kIndexElements + row * sizeof(float));
    for (size_t i = row * kIndexElements; i < (row + 1) * kIndexElements; ++i)
      values[i] = E4m3ToFloat(tile[i]) * scale;
  }
}

void EncodeIndexFp4Tile(const void* bf16, size_t rows, uint8_t* tile) {
  const auto* from = static_cast<const std::byte*>(bf16);
  uint8_t* scales = tile + rows * kPacked;
  for (size_t row = 0; row < rows; ++row, from += kIndexElements * sizeof(uint16_t)) {
    std::array<float, kIndexElements> key;
    Kernels().float_from_bf16(from, kIndexElements, key.data());
    EncodeMxfp4(key, Mxfp4Rule::kPow2Ceil, absl::MakeSpan(tile + row * kPacked, kPacked),
                absl::MakeSpan(scales + row * kFp4Scales, kFp4Scales));
  }
}

void DecodeIndexFp4Tile(const uint8_t* tile, size_t rows, float* values) {
  const uint8_t* scales = tile + rows * kPacked;
  for (size_t row = 0; row < rows; ++row) {
    DecodeMxfp4(absl::MakeConstSpan(tile + row * kPacked, kPacked),
                absl::MakeConstSpan(scales + row * kFp4Scales, kFp4Scales),
                absl::MakeSpan(values + row * kIndexElements, kIndexElements));
  }
}

}  // namespace cistern
