#include "core/layout/model_builder.h"

#include <numeric>

namespace cistern::layout {
namespace {

// Scale rules by their exact names: how a scale follows from the largest magnitude of its elements. Other
// rules make other bytes of the same numbers.
constexpr char kLatentRule[] = "e4m3:amax/448,fp32,min=FLT_MIN";
constexpr char kIndexRule[] = "e4m3:amax/448,fp32,amax>=1e-4";
constexpr char kIndexPow2Rule[] = "e4m3:2^ceil(log2(amax/448)),fp32,amax>=1e-4";
constexpr char kIndexFp4Rule[] = "e2m1:2^ceil(log2(max(amax,6*2^-126)/6)),ue8m0";
constexpr char kCompressedRule[] = "e4m3:2^ceil(log2(amax/448)),ue8m0,amax>=1e-4";
constexpr char kStaticRule[] = "per_tensor";  // One scale, told by the compute digest.

}  // namespace

std::vector<uint32_t> LayerRun(uint32_t first, uint32_t end) {
  std::vector<uint32_t> layers(end > first ? end - first : 0);
  std::iota(layers.begin(), layers.end(), first);
  return layers;
}

std::vector<Plane> HeadRow(const std::string& rows, uint32_t heads, uint32_t elements) {
  Plane k{.name = "k", .dtype = rows, .heads = heads, .elements = elements, .shard = Shard::kHead};
  if (rows == "fp8") {
    k.dtype = std::string("e4m3");
    k.scale_rule = kStaticRule;
  }
  Plane v = k;
  v.name = std::string("v");
  return {k, v};
}

std::vector<Plane> LatentRow(const std::string& rows, uint32_t latent, uint32_t rope) {
  if (rows != "fp8") {
    return {{.name = "latent", .dtype = rows, .elements = latent},
            {.name = "rope", .dtype = rows, .elements = rope}};
  }
  return {
      {.name = "latent", .dtype = "e4m3", .elements = latent, .scale_rule = kLatentRule, .scale_group = 128},
      {.name = "scale", .dtype = "fp32", .elements = latent / 128},
      {.name = "rope", .dtype = "bf16", .elements = rope}};
}

std::vector<Plane> IndexRow(const std::string& rows, uint32_t elements, bool pow2) {
  if (rows == "fp8") {
    return {{.name = "index_key",
             .dtype = "e4m3",
             .elements = elements,
             .scale_rule = pow2 ? kIndexPow2Rule : kIndexRule,
             .scale_group = 128},
            {.name = "index_scale", .dtype = "fp32", .elements = elements / 128}};
  }
  if (rows == "fp4") {
    return {{.name = "index_key",
             .dtype = "e2m1",
             .elements = elements,
             .scale_rule = kIndexFp4Rule,
             .scale_group = 32},
            {.name = "index_scale", .dtype = "ue8m0", .elements = elements / 32}};
  }
  return {{.name = "index_key", .dtype = rows, .elements = elements}};
}

std::vector<Plane> CompressedRow(const std::string& rows, uint32_t nope, uint32_t rope) {
  if (rows != "fp8") return {{.name = "kv", .dtype = rows, .elements = nope + rope}};
  Plane rope_plane{.name = "rope", .dtype = "bf16", .elements = rope};
  rope_plane.joined = true;
  // Scales of a row fill 8 bytes.
  const uint32_t scales = nope / 64;
  return {
      {.name = "nope", .dtype = "e4m3", .elements = nope, .scale_rule = kCompressedRule, .scale_group = 64},
      rope_plane,
      {.name = "scale", .dtype = "ue8m0", .elements = scales, .pad_bytes = (8 - scales % 8) % 8}};
}

Plane StatePlane(const std::string& name, const std::string& dtype, uint32_t heads, uint32_t elements) {
  return {.name = name, .dtype = dtype, .heads = heads, .elements = elements, .shard = Shard::kHead};
}

Group HistoryGroup(const std::string& name, uint16_t slices) { return {.name = name, .slices = slices}; }

Group WindowGroup(const std::string& name, uint32_t window_tokens, uint16_t slices) {
  return {.name = name, .family = Family::kTailWindow, .window_tokens = window_tokens, .slices = slices};
}

}  // namespace cistern::layout
