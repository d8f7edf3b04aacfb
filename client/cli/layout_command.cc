#include <algorithm>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/layout_json.h"
#include "client/cli/output.h"
#include "core/layout/fields.h"
#include "core/layout/geometry.h"
#include "nlohmann/json.hpp"
#include "proto/layout_catalog.h"
#include "proto/layout_text.h"

namespace cistern {
namespace {

std::string YesNo(bool value) { return value ? "yes" : ""; }

std::vector<std::string> GroupRow(const layout::Layout& layout, const layout::Group& group) {
  uint64_t least = UINT64_MAX, most = 0;
  for (uint32_t span = 0; span < layout::SpanCount(group); ++span) {
    const uint64_t bytes = layout::PartBytes(layout, group, span, kWholeTail);
    least = std::min(least, bytes), most = std::max(most, bytes);
  }
  const std::string parts =
      least == most ? std::to_string(most) : std::to_string(least).append("-").append(std::to_string(most));
  return {group.name,
          std::string(layout::FamilyName(group.family)),
          group.window_tokens == 0 ? "" : std::to_string(group.window_tokens),
          std::to_string(layout::LayersOf(group).size()),
          std::to_string(group.slices),
          std::to_string(layout::SpanCount(group)),
          YesNo(group.replicated),
          parts,
          std::to_string(layout::GroupBytes(layout, group, kWholeTail))};
}

}  // namespace

int RunLayoutList(const CliOptions& options) {
  Json out{{"layouts", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"name", "model", "rows", "served", "layers", "block tokens", "bytes a token", "tail bytes", "id"}};
  for (const ShippedLayout& one : ShippedLayouts()) {
    Json json = LayoutJson(one);
    rows.push_back({one.name, one.layout.model, one.layout.rows, YesNo(one.layout.served),
                    json["layers"].dump(), json["block_tokens"].dump(),
                    FormatNumber(json["bytes_per_token"].get<double>()), json["tail_bytes"].dump(),
                    ToHex(one.id, 4)});
    out["layouts"].push_back(std::move(json));
  }
  PrintResult(options.json, out, FormatTable(rows));
  return kExitDone;
}

int RunLayoutShow(const CliOptions& options) {
  const absl::StatusOr<ShippedLayout> found = FindLayout(options.layout.name);
  if (!found.ok()) return Fail(options.json, ErrorText(found.status()));
  const layout::Layout& layout = found->layout;
  if (options.layout.text && !options.json) {
    PrintResult(false, {}, FormatLayoutText(layout));
    return kExitDone;
  }
  Json out = LayoutJson(*found);
  std::vector<std::vector<std::string>> rows = {{"group", "family", "window", "layers", "slices", "spans",
                                                 "replicated", "bytes a part", "bytes in all"}};
  for (const layout::Group& group : layout.groups) rows.push_back(GroupRow(layout, group));
  std::string text = found->name + ": " + layout.model + ", rows " + layout.rows + ", id " +
                     ToHex(found->id) + "\n" + out["layers"].dump() + " layers, " +
                     std::to_string(layout.block_tokens) + " tokens a block, hits at multiples of " +
                     std::to_string(layout.align_tokens) + "\n\n" + FormatTable(rows) + "\nhistory " +
                     FormatNumber(layout::BytesPerToken(layout)) + " bytes a token; a block " +
                     out["block_bytes"].dump() + ", a tail " + out["tail_bytes"].dump() + " bytes\n";
  if (options.layout.text) out["text"] = FormatLayoutText(layout);
  PrintResult(options.json, out, text);
  return kExitDone;
}

int RunLayoutCheck(const CliOptions& options) {
  Json out{{"files", Json::array()}};
  std::string text;
  bool all_good = true;
  for (const std::string& file : options.layout.files) {
    const absl::StatusOr<ShippedLayout> found = ReadLayoutFile(file);
    if (absl::IsNotFound(found.status())) return Fail(options.json, ErrorText(found.status()));
    all_good = all_good && found.ok();
    Json one{{"file", file}, {"ok", found.ok()}};
    if (found.ok())
      one["id"] = ToHex(found->id);
    else
      one["error"] = ErrorText(found.status());
    text += found.ok() ? file + ": good, id " + ToHex(found->id) + "\n" : ErrorText(found.status()) + "\n";
    out["files"].push_back(std::move(one));
  }
  out["ok"] = all_good;
  PrintResult(options.json, out, text);
  return all_good ? kExitDone : kExitShort;
}

int RunLayoutDiff(const CliOptions& options) {
  const absl::StatusOr<ShippedLayout> before = FindLayout(options.layout.before);
  if (!before.ok()) return Fail(options.json, ErrorText(before.status()));
  const absl::StatusOr<ShippedLayout> after = FindLayout(options.layout.after);
  if (!after.ok()) return Fail(options.json, ErrorText(after.status()));
  const bool same = before->id == after->id;
  Json out{{"same_id", same}, {"ids", {ToHex(before->id), ToHex(after->id)}}, {"changes", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"field", before->name, after->name, ""}};
  for (const layout::FieldChange& change : layout::Diff(before->layout, after->layout)) {
    out["changes"].push_back(Json{
        {"path", change.path}, {"before", change.before}, {"after", change.after}, {"in_id", change.in_id}});
    rows.push_back({change.path, change.before, change.after, change.in_id ? "" : "not in the id"});
  }
  const std::string verdict = same ? "one id: blocks of one are blocks of the other\n"
                                   : "other ids: blocks of one are misses for the other\n";
  PrintResult(options.json, out, (rows.size() > 1 ? FormatTable(rows) : "") + verdict);
  return same ? kExitDone : kExitShort;
}

}  // namespace cistern
