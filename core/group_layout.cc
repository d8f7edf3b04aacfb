#include "core/group_layout.h"

#include <string>
#include <utility>

#include "core/check.h"
#include "core/layout/encoding.h"
#include "core/layout_spec.h"

namespace cistern {

uint64_t GroupLayout::HistoryBlockBytes() const {
  uint64_t bytes = 0;
  for (const HistorySet& set : sets) bytes += set.parts.TotalBytes();
  return bytes;
}

std::shared_ptr<const GroupLayout> MakeGroupLayout(layout::Layout layout, uint32_t scale) {
  CISTERN_CHECK(scale >= 1 && scale <= kLayoutScaleMax);
  auto out = std::make_shared<GroupLayout>();
  out->layout = std::move(layout);
  out->scale = scale;
  out->id = layout::ComputeId(out->layout);
  if (scale != 1) {  // Other bytes, so another id.
    LayoutSpec scaled;
    scaled.block_tokens = out->layout.block_tokens;
    scaled.part_bytes = 1;
    scaled.geometry = "scaled " + ToHex(out->id) + " 1/" + std::to_string(scale);
    out->id = ComputeLayoutId(scaled);
  }
  out->has_tails = HasTails(out->layout);
  const std::vector<GroupShare> whole = WholeShare(out->layout);
  size_t together = SIZE_MAX;
  for (uint32_t i = 0; i < out->layout.groups.size(); ++i) {
    const layout::Group& group = out->layout.groups[i];
    if (group.family != layout::Family::kHistory) continue;
    const bool plain = group.required && group.lookahead_tokens == 0;
    size_t at = plain ? together : SIZE_MAX;
    if (at == SIZE_MAX) {
      at = out->sets.size();
      out->sets.push_back({.lookahead_tokens = group.lookahead_tokens, .required = group.required});
      if (plain) together = at;
    }
    out->sets[at].groups.push_back(i);
    AppendParts(out->layout, i, whole[i], 0, scale, out->sets[at].parts);
  }
  return out;
}

}  // namespace cistern
