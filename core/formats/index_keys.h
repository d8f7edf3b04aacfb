#pragma once

#include <cstddef>
#include <cstdint>

#include "core/formats/fp4.h"

namespace cistern {

// Keys of a sparse indexer: 128 elements a row, as engines keep them in pages: all keys of a tile (64 tokens
// in vLLM), then all scales. bf16 rows in, exact floats out; whether keys have been rotated (Hadamard) before
// is the layout's affair. thread: any.
inline constexpr size_t kIndexElements = 128;

enum class IndexScale {
  kFp32,      // amax / 448 (V3.2, GLM). kRuleE4m3IndexFp32.
  kPow2Fp32,  // A power of two, still stored as fp32 (V4). kRuleE4m3IndexPow2Fp32.
};

// [128 E4M3] x rows, then [fp32] x rows.
inline constexpr size_t kIndexFp8Bytes = kIndexElements + sizeof(float);
void EncodeIndexFp8Tile(const void* bf16, size_t rows, IndexScale scale, uint8_t* tile);
void DecodeIndexFp8Tile(const uint8_t* tile, size_t rows, float* values);

// MXFP4: [64 packed E2M1] x rows, then [4 UE8M0] x rows.
inline constexpr size_t kIndexFp4Bytes = kIndexElements / 2 + kIndexElements / kMxfp4Block;
void EncodeIndexFp4Tile(const void* bf16, size_t rows, uint8_t* tile);
void DecodeIndexFp4Tile(const uint8_t* tile, size_t rows, float* values);

static_assert(kIndexFp8Bytes == 132 && kIndexFp4Bytes == 68);

}  // namespace cistern
