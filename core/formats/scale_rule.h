#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "core/formats/ue8m0.h"

namespace cistern {

// How a scale follows from the largest magnitude (amax) of its elements. Two engines that disagree on the
// rule store other bytes for the same numbers, so a layout names it exactly (Plane.scale_rule); these are the
// names.
inline constexpr char kRuleE4m3Fp32[] = "e4m3:amax/448,fp32,min=FLT_MIN";
inline constexpr char kRuleE4m3IndexFp32[] = "e4m3:amax/448,fp32,amax>=1e-4";
inline constexpr char kRuleE4m3IndexPow2Fp32[] = "e4m3:2^ceil(log2(amax/448)),fp32,amax>=1e-4";
inline constexpr char kRuleE4m3Pow2Ue8m0[] = "e4m3:2^ceil(log2(amax/448)),ue8m0,amax>=1e-4";
inline constexpr char kRuleE4m3OcpUe8m0[] = "e4m3:2^(floor(log2(amax))-8),ue8m0";
inline constexpr char kRuleInt8Fp32[] = "int8:amax/127,fp32,min=FLT_MIN";
inline constexpr char kRuleInt4MinMax[] = "int4:min,(max-min)/15,bf16-up";
inline constexpr char kRuleE2m1Pow2Ue8m0[] = "e2m1:2^ceil(log2(max(amax,6*2^-126)/6)),ue8m0";
inline constexpr char kRuleE2m1OcpUe8m0[] = "e2m1:2^(floor(log2(amax))-2),ue8m0";
inline constexpr char kRuleE2m1Nvfp4[] = "e2m1:amax/6/g,e4m3,g=fp32";

// vLLM's and DeepSeek's kernels keep indexer and V4 blocks from having a smaller largest value than this.
inline constexpr float kAmaxMin = 1e-4F;

// fp32 scales of rows and heads. FLT_MIN keeps zeros from dividing by zero and scales from being subnormal.
// source: vLLM's concat_and_cache_ds_mla_kernel, whose floor it is.
inline float E4m3Scale(float amax) { return std::max(amax / 448.0F, FLT_MIN); }
inline float Int8Scale(float amax) { return std::max(amax / 127.0F, FLT_MIN); }
// Of indexer keys. source: vLLM's indexer_k_quant_and_cache_kernel.
inline float E4m3IndexScale(float amax) { return std::max(amax, kAmaxMin) / 448.0F; }
// Of V4 rows, V4.1 rows and, as fp32, V4 indexer keys. source: DeepSeek's act_quant with scale_fmt ue8m0.
inline uint8_t E4m3Pow2Scale(float amax) { return Ue8m0Ceil(std::max(amax, kAmaxMin) / 448.0F); }
// source: OCP MX 1.0, 6.3: the largest power of two in amax over the largest in the element type.
inline uint8_t E4m3OcpScale(float amax) { return Ue8m0Floor(amax, 8); }
// source: DeepSeek's FP4 kernels.
inline uint8_t E2m1Pow2Scale(float amax) { return Ue8m0Ceil(std::max(amax, 6 * 0x1p-126F) / 6.0F); }
inline uint8_t E2m1OcpScale(float amax) { return Ue8m0Floor(amax, 2); }

}  // namespace cistern
