#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern {

// Rows of latent attention as engines store them: one row a token (or a compressed window) for all heads, of
// content that does not turn with position (NoPE) and a RoPE key. bf16 rows in, of any alignment; decoding
// gives exact floats, so that an oracle and a kernel start from the same numbers. docs/formats.md has the
// layouts. Pointers reach as many bytes as the constants say; nothing else is read or written. thread: any.

inline constexpr size_t kRopeElements = 64;
inline constexpr size_t kMlaElements =
    512 + kRopeElements;  // DeepSeek V3, V3.2, GLM-5, Kimi K2: latent, RoPE.

// vLLM's fp8_ds_mla: [512 E4M3][4 fp32 scales, one a 128][64 bf16 RoPE].
inline constexpr size_t kFp8DsMlaRowBytes = 656;
void EncodeFp8DsMlaRow(const void* bf16, uint8_t* row);
void DecodeFp8DsMlaRow(const uint8_t* row, float* values);

// vLLM's nvfp4_ds_mla: [256 packed E2M1][64 E4M3 RoPE without a scale][32 E4M3 scales, one a 16], the scale
// of block s at byte 8 * (s & 3) + (s >> 2). `tensor_scale` is NVFP4's g, which the row does not hold.
inline constexpr size_t kNvfp4DsMlaRowBytes = 352;
constexpr size_t Nvfp4DsMlaScaleByte(size_t block) { return 8 * (block & 3) + (block >> 2); }
void EncodeNvfp4DsMlaRow(const void* bf16, float tensor_scale, uint8_t* row);
void DecodeNvfp4DsMlaRow(const uint8_t* row, float tensor_scale, float* values);

// DeepSeek V4: 448 E4M3 and 64 bf16 RoPE in one place, seven UE8M0 scales (one a 64) and a zero byte in
// another.
inline constexpr size_t kV4Elements = 512;
inline constexpr size_t kV4Content = kV4Elements - kRopeElements;
inline constexpr size_t kV4DataBytes = 576;
inline constexpr size_t kV4ScaleBytes = 8;
inline constexpr size_t kV4RowBytes = kV4DataBytes + kV4ScaleBytes;
void EncodeV4Row(const void* bf16, uint8_t* data, uint8_t* scales);
void DecodeV4Row(const uint8_t* data, const uint8_t* scales, float* values);
// A tile of `rows` rows: all data, then all scales (a part's row_tile, or an engine's page without its
// padding).
constexpr size_t V4TileBytes(size_t rows) { return rows * kV4RowBytes; }
void EncodeV4Tile(const void* bf16, size_t rows, uint8_t* tile);
void DecodeV4Tile(const uint8_t* tile, size_t rows, float* values);

// DeepSeek V4.1's MXFP8: [512 E4M3, RoPE too][16 UE8M0 scales, one a 32], row after row.
inline constexpr size_t kMxfp8RowBytes = 528;
inline constexpr size_t kMxfp8Block = 32;
enum class Mxfp8Rule { kPow2Ceil, kOcpFloor };  // kRuleE4m3Pow2Ue8m0, kRuleE4m3OcpUe8m0.
void EncodeMxfp8Row(const void* bf16, Mxfp8Rule rule, uint8_t* row);
void DecodeMxfp8Row(const uint8_t* row, float* values);

// vLLM's pages of V4 start at multiples of this many bytes.
inline constexpr size_t kV4PageAlign = 576;
constexpr size_t V4PageBytes(size_t content_bytes) {
  return (content_bytes + kV4PageAlign - 1) / kV4PageAlign * kV4PageAlign;
}

}  // namespace cistern
