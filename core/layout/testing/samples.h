#pragma once

#include "core/layout/layout.h"

// Small layouts for tests; not those of any model.
namespace cistern::layout {

inline Plane HeadPlane(const char* name, uint32_t heads, uint32_t elements, const char* dtype = "bf16") {
  return {.name = name, .dtype = dtype, .heads = heads, .elements = elements, .shard = Shard::kHead};
}

// One history group: 4 layers, 8 heads in 4 slices, K and V side by side; 2 KiB a token and layer.
inline Layout SampleDense() {
  Layout layout{.model = "dense", .rows = "bf16", .unit_tokens = 16, .block_tokens = 16, .align_tokens = 16};
  Group group{.name = "full", .slices = 4};
  group.segments.push_back(
      {.name = "kv", .layers = {0, 1, 2, 3}, .planes = {HeadPlane("k", 8, 64), HeadPlane("v", 8, 64)}});
  layout.groups.push_back(group);
  return layout;
}

// History in layers 1 and 3 (layer 3 with index keys, a row per 4 tokens), a window of 5 tokens in layer 0, a
// state in layer 2, and a scratch group. Two spans.
inline Layout SampleHybrid() {
  Layout layout{.model = "hybrid", .rows = "bf16", .unit_tokens = 16, .block_tokens = 16, .align_tokens = 16};
  Group full{.name = "full", .span_ends = {2, 4}};
  full.segments.push_back(
      {.name = "kv", .layers = {1, 3}, .planes = {HeadPlane("k", 2, 8), HeadPlane("v", 2, 8)}});
  Plane key{
      .name = "index_key", .dtype = "e4m3", .elements = 128, .scale_rule = "fp32_128", .scale_group = 128};
  Plane scale{.name = "index_scale", .dtype = "fp32", .elements = 1};
  full.segments.push_back(
      {.name = "index", .layers = {3}, .tokens_per_row = 4, .row_tile = 64, .planes = {key, scale}});
  Group window{.name = "window", .family = Family::kTailWindow, .window_tokens = 5, .slices = 2};
  window.segments.push_back({.layers = {0}, .planes = {HeadPlane("k", 2, 8), HeadPlane("v", 2, 8)}});
  Group state{.name = "state", .family = Family::kTailState, .slices = 2};
  state.segments.push_back(
      {.name = "recurrent", .layers = {2}, .tokens_per_row = 0, .planes = {HeadPlane("s", 4, 64, "fp32")}});
  state.segments.push_back(
      {.name = "conv", .layers = {2}, .tokens_per_row = 0, .planes = {HeadPlane("q", 2, 24)}});
  Group scratch{.name = "ring", .family = Family::kScratch};
  layout.groups = {full, window, state, scratch};
  return layout;
}

}  // namespace cistern::layout
