#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/layout/fit.h"
#include "core/layout/model_builder.h"
#include "nlohmann/json.hpp"

// One builder for each model type: which of the config's fields say what is kept of a token.
namespace cistern::layout {
namespace {

using Config = ConfigReader;

struct Heads {
  uint32_t layers = 0, kv_heads = 0, elements = 0;
};
Heads ReadHeads(Config& config) {
  Heads out;
  out.layers = config.Number("num_hidden_layers", kLayersMax);
  const uint32_t heads = config.Number("num_attention_heads", kHeadsMax);
  out.kv_heads = config.NumberOr("num_key_value_heads", kHeadsMax, heads);
  const uint32_t hidden = config.Number("hidden_size", kElementsMax);
  out.elements = config.NumberOr("head_dim", kElementsMax, 0);
  if (heads == 0 || out.kv_heads == 0) return out;  // Refused already.
  if (heads % out.kv_heads != 0) {
    config.Refuse("num_key_value_heads",
                  absl::StrCat("is ", out.kv_heads, ", which ", heads, " heads cannot share"));
  }
  if (out.elements != 0) return out;
  if (hidden % heads != 0) {
    config.Refuse("head_dim", absl::StrCat("is missing, and hidden_size ", hidden, " is no multiple of ",
                                           heads, " heads"));
  }
  out.elements = hidden / heads;
  return out;
}

void AddHeadGroup(Layout& layout, Group group, std::vector<uint32_t> layers, std::vector<Plane> planes) {
  if (layers.empty()) return;
  Segment segment{.name = "kv", .layers = std::move(layers)};
  segment.planes = std::move(planes);
  group.segments.push_back(std::move(segment));
  layout.groups.push_back(std::move(group));
}

// Layers by the kind that layer_types gives them; each name must be one of the two.
struct Split {
  std::vector<uint32_t> full, other;
};
Split ReadLayerTypes(Config& config, uint32_t layers, const char* full, const char* other) {
  Split split;
  const std::vector<std::string> types = config.Texts("layer_types", kLayersMax);
  if (!types.empty() && types.size() != layers)
    config.Refuse("layer_types", absl::StrCat("has ", types.size(), " entries for ", layers, " layers"));
  for (uint32_t i = 0; i < types.size(); ++i) {
    if (types[i] == full) {
      split.full.push_back(i);
    } else if (types[i] == other) {
      split.other.push_back(i);
    } else {
      config.Refuse("layer_types",
                    absl::StrCat("has '", types[i], "'; known here: ", full,
                                 std::string_view(full) == other ? "" : absl::StrCat(", ", other)));
    }
  }
  return split;
}

// Every `interval`-th layer is full.
Split Every(uint32_t layers, uint32_t interval) {
  Split split;
  for (uint32_t i = 0; i < layers; ++i) ((i + 1) % interval == 0 ? split.full : split.other).push_back(i);
  return split;
}

void BuildFull(Config& config, const RowFormat& format, const ConfigQuery&, Layout& layout) {
  const Heads heads = ReadHeads(config);
  if (config.Has("use_sliding_window"))
    config.Refuse("use_sliding_window", "is true; only full attention is known here");
  // Of no effect while use_sliding_window is false; elsewhere a window is refused below.
  if (layout.model == "qwen3" || layout.model == "qwen3_moe")
    config.Ignore({"sliding_window", "max_window_layers"});
  ReadLayerTypes(config, heads.layers, "full_attention", "full_attention");
  for (uint32_t type : config.Numbers("attn_type_list", kLayersMax)) {
    if (type != 1)
      config.Refuse("attn_type_list", absl::StrCat("has ", type, "; only 1, full attention, is known"));
  }
  AddHeadGroup(layout, HistoryGroup("full", FitSlices(heads.kv_heads)), LayerRun(0, heads.layers),
               HeadRow(format.rows, heads.kv_heads, heads.elements));
}

void BuildWindowed(Config& config, const RowFormat& format, const ConfigQuery&, Layout& layout) {
  const Heads heads = ReadHeads(config);
  const uint32_t window = config.Number("sliding_window", kWindowTokensMax);
  Split split = ReadLayerTypes(config, heads.layers, "full_attention", "sliding_attention");
  const uint32_t pattern = config.NumberOr("sliding_window_pattern", kLayersMax, 0);
  config.Ignore({"cache_implementation"});
  if (split.full.empty() && split.other.empty()) {
    if (pattern == 0) config.Refuse("layer_types", "is missing: which layers have a window?");
    split = Every(heads.layers, std::max(pattern, 1u));
  }
  const uint16_t slices = FitSlices(heads.kv_heads);
  const std::vector<Plane> row = HeadRow(format.rows, heads.kv_heads, heads.elements);
  AddHeadGroup(layout, HistoryGroup("full", slices), split.full, row);
  AddHeadGroup(layout, WindowGroup("window", window, slices), split.other, row);
}

// Recurrent states of one matrix a head, and the last inputs of a convolution in three runs.
struct Recurrent {
  uint32_t key_heads = 0, value_heads = 0, key_elements = 0, value_elements = 0, kernel = 0;
};
void AddState(Layout& layout, const Recurrent& r, const std::vector<uint32_t>& layers,
              const RowFormat& format, const ConfigQuery& query) {
  if (layers.empty()) return;
  const std::string conv = format.rows == "fp8" ? "bf16" : format.rows;
  Group group{.name = "state",
              .family = Family::kTailState,
              .slices = FitSlices(r.key_heads == 0 ? r.value_heads : std::min(r.key_heads, r.value_heads))};
  const auto add = [&](const char* segment_name, Plane plane) {
    Segment segment{.name = segment_name, .layers = layers, .tokens_per_row = 0};
    segment.planes.push_back(std::move(plane));
    group.segments.push_back(std::move(segment));
  };
  add("recurrent", StatePlane("state", query.state_dtype.empty() ? "fp32" : query.state_dtype, r.value_heads,
                              r.key_elements * r.value_elements));
  const uint32_t kept = r.kernel > 0 ? r.kernel - 1 : 0;
  add("conv_q", StatePlane("conv_q", conv, r.key_heads, r.key_elements * kept));
  add("conv_k", StatePlane("conv_k", conv, r.key_heads, r.key_elements * kept));
  add("conv_v", StatePlane("conv_v", conv, r.value_heads, r.value_elements * kept));
  layout.groups.push_back(std::move(group));
}

void BuildQwen3Next(Config& config, const RowFormat& format, const ConfigQuery& query, Layout& layout) {
  const Heads heads = ReadHeads(config);
  Recurrent r;
  r.key_heads = config.Number("linear_num_key_heads", kHeadsMax);
  r.value_heads = config.Number("linear_num_value_heads", kHeadsMax);
  r.key_elements = config.Number("linear_key_head_dim", 4096);
  r.value_elements = config.Number("linear_value_head_dim", 4096);
  r.kernel = config.Number("linear_conv_kernel_dim", 64);
  Split split = ReadLayerTypes(config, heads.layers, "full_attention", "linear_attention");
  const uint32_t interval = config.NumberOr("full_attention_interval", kLayersMax, 4);
  if (split.full.empty() && split.other.empty()) split = Every(heads.layers, interval);
  AddHeadGroup(layout, HistoryGroup("full", FitSlices(heads.kv_heads)), split.full,
               HeadRow(format.rows, heads.kv_heads, heads.elements));
  AddState(layout, r, split.other, format, query);
}

Group LatentGroup(Config& config, const RowFormat& format, std::vector<uint32_t> layers) {
  config.Ignore({"q_lora_rank", "qk_nope_head_dim", "v_head_dim", "qk_head_dim", "num_key_value_heads",
                 "head_dim", "num_attention_heads"});
  Group group = HistoryGroup("mla", 1);
  group.replicated = true;
  Segment rows{.name = "rows", .layers = std::move(layers)};
  const uint32_t latent = config.Number("kv_lora_rank", kElementsMax);
  rows.planes = LatentRow(format.rows, latent, config.Number("qk_rope_head_dim", kElementsMax));
  if (format.rows == "fp8" && latent % 128 != 0)
    config.Refuse("kv_lora_rank", absl::StrCat("is ", latent, "; fp8 rows have a scale for every 128"));
  group.segments.push_back(std::move(rows));
  return group;
}

void BuildLatent(Config& config, const RowFormat& format, const ConfigQuery&, Layout& layout) {
  layout.groups.push_back(
      LatentGroup(config, format, LayerRun(0, config.Number("num_hidden_layers", kLayersMax))));
}

Segment IndexSegment(Config& config, const RowFormat& format, std::vector<uint32_t> layers, bool pow2) {
  config.Ignore({"index_n_heads", "index_topk"});
  Segment index{.name = "index", .layers = std::move(layers)};
  index.row_tile = format.index == "fp8" || format.index == "fp4" ? 64 : 1;
  const uint32_t elements = config.Number("index_head_dim", kElementsMax);
  if (elements % 128 != 0)
    config.Refuse("index_head_dim", absl::StrCat("is ", elements, ", no multiple of 128"));
  index.planes = IndexRow(format.index, elements, pow2);
  return index;
}

void BuildLatentIndexed(Config& config, const RowFormat& format, const ConfigQuery&, Layout& layout) {
  const uint32_t layers = config.Number("num_hidden_layers", kLayersMax);
  const uint32_t every = config.NumberOr("index_topk_freq", kLayersMax, 1);
  const uint32_t offset = config.NumberOr("index_skip_topk_offset", kLayersMax, 1);
  config.Ignore({"indexer_rope_interleave"});
  std::vector<uint32_t> indexed;
  for (uint32_t i = 0; i < layers; ++i) {
    const uint32_t behind = i + 1 > offset ? i + 1 - offset : 0;
    if (every != 0 && behind % every == 0) indexed.push_back(i);
  }
  Group group = LatentGroup(config, format, LayerRun(0, layers));
  group.segments.push_back(IndexSegment(config, format, std::move(indexed), false));
  layout.groups.push_back(std::move(group));
}

// Layers that a config counts from 1; 0 is no layer, and no layer has the id that comes of it.
uint32_t FromOne(uint32_t layer) { return layer == 0 ? kLayersMax : layer - 1; }

void BuildKimiLinear(Config& config, const RowFormat& format, const ConfigQuery& query, Layout& layout) {
  const uint32_t layers = config.Number("num_hidden_layers", kLayersMax);
  const nlohmann::json* linear = config.Object("linear_attn_config");
  if (linear == nullptr) return config.Refuse("linear_attn_config", "is missing");
  Config inner(*linear, "linear_attn_config.");
  std::vector<uint32_t> kda, full;
  for (uint32_t layer : inner.Numbers("kda_layers", kLayersMax)) kda.push_back(FromOne(layer));
  for (uint32_t layer : inner.Numbers("full_attn_layers", kLayersMax)) full.push_back(FromOne(layer));
  if (kda.size() + full.size() != layers)
    inner.Refuse("kda_layers", absl::StrCat("and full_attn_layers have ", kda.size() + full.size(), " of ",
                                            layers, " layers"));
  std::sort(kda.begin(), kda.end());
  std::sort(full.begin(), full.end());
  Recurrent r;
  r.key_heads = r.value_heads = inner.Number("num_heads", kHeadsMax);
  r.key_elements = r.value_elements = inner.Number("head_dim", 4096);
  r.kernel = inner.Number("short_conv_kernel_size", 64);
  inner.RefuseUnasked();
  if (!inner.status().ok()) return config.Refuse("linear_attn_config", std::string(inner.status().message()));
  layout.groups.push_back(LatentGroup(config, format, std::move(full)));
  AddState(layout, r, kda, format, query);
}

// Half-made rows: values and gates of a compressor that makes a row of `tokens` tokens.
Group CompressorState(const char* name, uint32_t window_tokens) {
  Group group = WindowGroup(name, window_tokens, 1);
  group.replicated = group.working = true;
  return group;
}
void AddCompressor(Group& group, const char* name, const std::string& prefix,
                   const std::vector<uint32_t>& layers, uint32_t elements) {
  Segment segment{.name = name, .layers = layers};
  segment.planes.push_back({.name = prefix + "_kv", .dtype = "fp32", .elements = elements});
  segment.planes.push_back({.name = prefix + "_gate", .dtype = "fp32", .elements = elements});
  group.segments.push_back(std::move(segment));
}

void BuildDeepSeekV4(Config& config, const RowFormat& format, const ConfigQuery&, Layout& layout) {
  const uint32_t layers = config.Number("num_hidden_layers", kLayersMax);
  const uint32_t elements = config.Number("head_dim", kElementsMax / 2);
  const uint32_t rope = config.Number("qk_rope_head_dim", kElementsMax);
  const uint32_t window = config.Number("sliding_window", kWindowTokensMax);
  config.Ignore({"q_lora_rank", "o_lora_rank", "num_key_value_heads", "compress_rope_theta"});
  std::vector<uint32_t> ratios = config.Numbers("compress_ratios", kLayersMax);
  if (ratios.size() < layers)
    return config.Refuse("compress_ratios",
                         absl::StrCat("has ", ratios.size(), " entries for ", layers, " layers"));
  if (rope >= elements || (format.rows == "fp8" && (elements - rope) % 64 != 0))
    return config.Refuse("head_dim",
                         absl::StrCat("is ", elements, " with ", rope, " rotary; scales are for 64 each"));
  std::vector<uint32_t> c4, c128;
  for (uint32_t i = 0; i < layers; ++i) {  // Entries behind them are of draft layers.
    if (ratios[i] == 4) c4.push_back(i);
    if (ratios[i] == 128) c128.push_back(i);
    if (ratios[i] != 0 && ratios[i] != 4 && ratios[i] != 128)
      config.Refuse("compress_ratios", absl::StrCat("has ", ratios[i], "; known are 0, 4 and 128"));
  }
  const std::vector<Plane> row = CompressedRow(format.rows, elements - rope, rope);
  const uint32_t tile = format.rows == "fp8" ? 64 : 1;
  const auto rows = [&](const char* name, const std::vector<uint32_t>& in, uint32_t tokens) {
    Segment segment{.name = name, .layers = in, .tokens_per_row = tokens, .row_tile = tile};
    segment.planes = row;
    return segment;
  };
  Group history = HistoryGroup("history", 1);
  Segment index = IndexSegment(config, format, c4, true);
  index.tokens_per_row = 4;
  const uint32_t index_elements = config.Number("index_head_dim", kElementsMax / 2);
  if (!c4.empty()) history.segments = {rows("c4", c4, 4), index};
  if (!c128.empty()) history.segments.push_back(rows("c128", c128, 128));
  Group raw = WindowGroup("window", window, 1);
  raw.segments = {rows("raw", LayerRun(0, layers), 1)};
  history.replicated = raw.replicated = true;
  layout.groups = {std::move(history), std::move(raw)};
  Group c4_state = CompressorState("c4_state", 8), c128_state = CompressorState("c128_state", 128);
  AddCompressor(c4_state, "c4", "c4", c4, 2 * elements);
  AddCompressor(c4_state, "index", "index", c4, 2 * index_elements);
  AddCompressor(c128_state, "c128", "c128", c128, elements);
  if (!c4.empty()) layout.groups.push_back(std::move(c4_state));
  if (!c128.empty()) layout.groups.push_back(std::move(c128_state));
}

}  // namespace

const std::vector<ModelType>& ModelTypes() {
  static const std::vector<ModelType> kAll = {
      {.name = "llama", .build = BuildFull},
      {.name = "mistral", .build = BuildFull},
      {.name = "qwen3", .build = BuildFull},
      {.name = "qwen3_moe", .build = BuildFull},
      {.name = "minimax_m2", .build = BuildFull},
      {.name = "gpt_oss", .build = BuildWindowed, .block_tokens_max = 128},
      {.name = "gemma3_text", .build = BuildWindowed},
      {.name = "qwen3_next", .build = BuildQwen3Next, .block_tokens_max = 16},
      {.name = "deepseek_v3", .build = BuildLatent},
      {.name = "kimi_k2", .build = BuildLatent},
      {.name = "deepseek_v32", .build = BuildLatentIndexed, .has_index = true},
      {.name = "glm_moe_dsa", .build = BuildLatentIndexed, .has_index = true},
      {.name = "deepseek_v4",
       .build = BuildDeepSeekV4,
       .block_step = 256,
       .block_tokens_max = 256,
       .has_index = true,
       .row_tokens_max = 128},
      {.name = "kimi_linear", .build = BuildKimiLinear, .block_tokens_max = 128},
      {.name = "kimi_k3", .build = BuildKimiLinear, .block_tokens_max = 128},
  };
  return kAll;
}

}  // namespace cistern::layout
