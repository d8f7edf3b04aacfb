#include "core/formats/mla_rows.h"

#include <array>
#include <cstring>

#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/formats/bf16.h"
#include "core/formats/e4m3.h"
#include "core/formats/fp4.h"
#include "core/formats/kernels.h"
#include "core/formats/scale_rule.h"

namespace cistern {
namespace {

constexpr size_t kLatent = 512;
constexpr size_t kFp8Group = 128;
constexpr size_t kV4Group = 64;

const std::byte* At(const void* bf16, size_t element) {
  return static_cast<const std::byte*>(bf16) + element * sizeof(uint16_t);
}
float AmaxAt(const void* bf16, size_t element, size_t n) {
  return Bf16ToFloat(Kernels().amax(At(bf16, element), n));
}
void DecodeE4m3(const uint8_t* codes, size_t n, float scale, float* values) {
  for (size_t i = 0; i < n; ++i) values[i] = E4m3ToFloat(codes[i]) * scale;
}

}  // namespace

void EncodeFp8DsMlaRow(const void* bf16, uint8_t* row) {
  for (size_t at = 0; at < kLatent; at += kFp8Group) {
    const float scale = E4m3Scale(AmaxAt(bf16, at, kFp8Group));
    Kernels().e4m3_encode(At(bf16, at), kFp8Group, scale, row + at);
    StoreLe(row + kLatent + at / kFp8Group * sizeof(float), scale);
  }
  std::memcpy(row + kFp8DsMlaRowBytes - kRopeElements * 2, At(bf16, kLatent), kRopeElements * 2);
}

void DecodeFp8DsMlaRow(const uint8_t* row, float* values) {
  for (size_t at = 0; at < kLatent; at += kFp8Group) {
    const auto scale = LoadLe<float>(row + kLatent + at / kFp8Group * sizeof(float));
    DecodeE4m3(row + at, kFp8Group, scale, values + at);
  }
  Kernels().float_from_bf16(row + kFp8DsMlaRowBytes - kRopeElements * 2, kRopeElements, values + kLatent);
}

void EncodeNvfp4DsMlaRow(const void* bf16, float tensor_scale, uint8_t* row) {
  std::array<float, kLatent> latent;
  std::array<uint8_t, kLatent / kNvfp4Block> scales;
  Kernels().float_from_bf16(bf16, kLatent, latent.data());
  EncodeNvfp4(latent, tensor_scale, absl::MakeSpan(row, kLatent / 2), absl::MakeSpan(scales));
  Kernels().e4m3_encode(At(bf16, kLatent), kRopeElements, 1, row + kLatent / 2);
  uint8_t* to = row + kLatent / 2 + kRopeElements;
  for (size_t block = 0; block < scales.size(); ++block) to[Nvfp4DsMlaScaleByte(block)] = scales[block];
}

void DecodeNvfp4DsMlaRow(const uint8_t* row, float tensor_scale, float* values) {
  std::array<uint8_t, kLatent / kNvfp4Block> scales;
  const uint8_t* from = row + kLatent / 2 + kRopeElements;
  for (size_t block = 0; block < scales.size(); ++block) scales[block] = from[Nvfp4DsMlaScaleByte(block)];
  DecodeNvfp4(absl::MakeConstSpan(row, kLatent / 2), scales, tensor_scale, absl::MakeSpan(values, kLatent));
  DecodeE4m3(row + kLatent / 2, kRopeElements, 1, values + kLatent);
}

void EncodeV4Row(const void* bf16, uint8_t* data, uint8_t* scales) {
  for (size_t at = 0; at < kV4Content; at += kV4Group) {
    const uint8_t scale = E4m3Pow2Scale(AmaxAt(bf16, at, kV4Group));
    Kernels().e4m3_encode(At(bf16, at), kV4Group, Ue8m0ToFloat(scale), data + at);
    scales[at / kV4Group] = scale;
  }
  scales[kV4ScaleBytes - 1] = 0;
  std::memcpy(data + kV4Content, At(bf16, kV4Content), kRopeElements * 2);
}

void DecodeV4Row(const uint8_t* data, const uint8_t* scales, float* values) {
  for (size_t at = 0; at < kV4Content; at += kV4Group)
    DecodeE4m3(data + at, kV4Group, Ue8m0ToFloat(scales[at / kV4Group]), values + at);
  Kernels().float_from_bf16(data + kV4Content, kRopeElements, values + kV4Content);
}

void EncodeV4Tile(const void* bf16, size_t rows, uint8_t* tile) {
  uint8_t* scales = tile + rows * kV4DataBytes;
  for (size_t row = 0; row < rows; ++row)
    EncodeV4Row(At(bf16, row * kV4Elements), tile + row * kV4DataBytes, scales + row * kV4ScaleBytes);
}

void DecodeV4Tile(const uint8_t* tile, size_t rows, float* values) {
  const uint8_t* scales = tile + rows * kV4DataBytes;
  for (size_t row = 0; row < rows; ++row)
    DecodeV4Row(tile + row * kV4DataBytes, scales + row * kV4ScaleBytes, values + row * kV4Elements);
}

void EncodeMxfp8Row(const void* bf16, Mxfp8Rule rule, uint8_t* row) {
  for (size_t at = 0; at < kLatent; at += kMxfp8Block) {
    const float amax = AmaxAt(bf16, at, kMxfp8Block);
    const uint8_t scale = rule == Mxfp8Rule::kPow2Ceil ? E4m3Pow2Scale(amax) : E4m3OcpScale(amax);
    Kernels().e4m3_encode(At(bf16, at), kMxfp8Block, Ue8m0ToFloat(scale), row + at);
    row[kLatent + at / kMxfp8Block] = scale;
  }
}

void DecodeMxfp8Row(const uint8_t* row, float* values) {
  for (size_t at = 0; at < kLatent; at += kMxfp8Block)
    DecodeE4m3(row + at, kMxfp8Block, Ue8m0ToFloat(row[kLatent + at / kMxfp8Block]), values + at);
}

}  // namespace cistern
