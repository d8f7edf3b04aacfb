#include "client/cli/layout_json.h"

#include <string>

#include "core/layout/geometry.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

Json GroupJson(const layout::Layout& layout, const layout::Group& group) {
  Json out{{"name", group.name},
           {"family", std::string(layout::FamilyName(group.family))},
           {"required", group.required},
           {"window_tokens", group.window_tokens},
           {"lookahead_tokens", group.lookahead_tokens},
           {"slices", group.slices},
           {"spans", layout::SpanCount(group)},
           {"replicated", group.replicated},
           {"working", group.working},
           {"layers", layout::LayersOf(group)}};
  out["part_bytes"] = Json::array();
  for (uint32_t span = 0; span < layout::SpanCount(group); ++span)
    out["part_bytes"].push_back(layout::PartBytes(layout, group, span, kWholeTail));
  out["bytes"] = layout::GroupBytes(layout, group, kWholeTail);
  return out;
}

}  // namespace

Json LayoutJson(const ShippedLayout& shipped) {
  const layout::Layout& layout = shipped.layout;
  uint64_t block_bytes = 0, tail_bytes = 0;
  for (const layout::Group& group : layout.groups) {
    (group.family == layout::Family::kHistory ? block_bytes : tail_bytes) +=
        layout::GroupBytes(layout, group, kWholeTail);
  }
  Json out{{"name", shipped.name},
           {"model", layout.model},
           {"rows", layout.rows},
           {"served", layout.served},
           {"id", ToHex(shipped.id)},
           {"layers", layout::ModelLayers(layout)},
           {"unit_tokens", layout.unit_tokens},
           {"block_tokens", layout.block_tokens},
           {"align_tokens", layout.align_tokens},
           {"replay_tokens", layout.replay_tokens},
           {"stripe_layers", layout.stripe_layers},
           {"bytes_per_token", layout::BytesPerToken(layout)},
           {"block_bytes", block_bytes},
           {"tail_bytes", tail_bytes},
           {"groups", Json::array()}};
  for (const layout::Group& group : layout.groups) out["groups"].push_back(GroupJson(layout, group));
  return out;
}

}  // namespace cistern
