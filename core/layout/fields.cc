#include "core/layout/fields.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace cistern::layout {
namespace {

using FieldList = std::vector<std::pair<std::string, std::string>>;

const char* YesNo(bool value) { return value ? "true" : "false"; }

const char* ShardName(Shard shard) { return shard == Shard::kHead ? "HEAD" : "NONE"; }

std::string OrderName(const Plane& plane) {
  if (plane.order == Order::kColumn) return "COLUMN";
  return plane.order == Order::kNamed ? "NAMED " + plane.order_name : "ROW";
}

void AddPlane(FieldList& fields, const std::string& path, const Plane& plane) {
  fields.emplace_back(path + ".name", plane.name);
  fields.emplace_back(path + ".dtype", plane.dtype);
  fields.emplace_back(path + ".heads", absl::StrCat(plane.heads));
  fields.emplace_back(path + ".elements", absl::StrCat(plane.elements));
  fields.emplace_back(path + ".shard", ShardName(plane.shard));
  fields.emplace_back(path + ".order", OrderName(plane));
  fields.emplace_back(path + ".scale_rule", plane.scale_rule);
  fields.emplace_back(path + ".scale_group", absl::StrCat(plane.scale_group));
  fields.emplace_back(path + ".pad_bytes", absl::StrCat(plane.pad_bytes));
  fields.emplace_back(path + ".joined", YesNo(plane.joined));
}

void AddGroup(FieldList& fields, const std::string& path, const Group& group) {
  fields.emplace_back(path + ".name", group.name);
  fields.emplace_back(path + ".family", std::string(FamilyName(group.family)));
  fields.emplace_back(path + ".window_tokens", absl::StrCat(group.window_tokens));
  fields.emplace_back(path + ".required", YesNo(group.required));
  fields.emplace_back(path + ".lookahead_tokens", absl::StrCat(group.lookahead_tokens));
  fields.emplace_back(path + ".slices", absl::StrCat(group.slices));
  fields.emplace_back(path + ".replicated", YesNo(group.replicated));
  fields.emplace_back(path + ".span_ends", FormatIds(group.span_ends));
  fields.emplace_back(path + ".working", YesNo(group.working));
  for (size_t s = 0; s < group.segments.size(); ++s) {
    const Segment& segment = group.segments[s];
    const std::string at = absl::StrCat(path, ".segments[", s, "]");
    fields.emplace_back(at + ".name", segment.name);
    fields.emplace_back(at + ".layers", FormatIds(segment.layers));
    fields.emplace_back(at + ".tokens_per_row", absl::StrCat(segment.tokens_per_row));
    fields.emplace_back(at + ".row_tile", absl::StrCat(segment.row_tile));
    for (size_t p = 0; p < segment.planes.size(); ++p)
      AddPlane(fields, absl::StrCat(at, ".planes[", p, "]"), segment.planes[p]);
  }
}

bool InId(const std::string& path) {
  return path != "model" && path != "rows" && path != "served" && !path.ends_with(".working");
}

}  // namespace

std::string FormatIds(const std::vector<uint32_t>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    absl::StrAppend(&out, out.empty() ? "" : ",", ids[i]);
    if (last > i) absl::StrAppend(&out, last > i + 1 ? "-" : ",", ids[last]);
    i = last + 1;
  }
  return out;
}

FieldList ListFields(const Layout& layout) {
  FieldList fields = {{"model", layout.model},
                      {"rows", layout.rows},
                      {"served", YesNo(layout.served)},
                      {"unit_tokens", absl::StrCat(layout.unit_tokens)},
                      {"block_tokens", absl::StrCat(layout.block_tokens)},
                      {"align_tokens", absl::StrCat(layout.align_tokens)},
                      {"replay_tokens", absl::StrCat(layout.replay_tokens)},
                      {"stripe_layers", absl::StrCat(layout.stripe_layers)},
                      {"cacheless_layers", FormatIds(layout.cacheless_layers)}};
  for (size_t g = 0; g < layout.groups.size(); ++g)
    AddGroup(fields, absl::StrCat("groups[", g, "]"), layout.groups[g]);
  return fields;
}

std::vector<FieldChange> Diff(const Layout& before, const Layout& after) {
  std::map<std::string, std::string> there;
  for (auto& [path, value] : ListFields(after)) there.emplace(path, value);
  std::vector<FieldChange> changes;
  for (const auto& [path, value] : ListFields(before)) {
    const auto it = there.find(path);
    if (it == there.end()) {
      changes.push_back({path, value, "", InId(path)});
      continue;
    }
    if (it->second != value) changes.push_back({path, value, it->second, InId(path)});
    there.erase(it);
  }
  for (const auto& [path, value] : ListFields(after)) {
    if (there.contains(path)) changes.push_back({path, "", value, InId(path)});
  }
  return changes;
}

}  // namespace cistern::layout
