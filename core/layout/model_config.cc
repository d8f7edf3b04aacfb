#include "core/layout/model_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/layout/fit.h"
#include "core/layout/model_builder.h"
#include "core/status_macros.h"
#include "nlohmann/json.hpp"

namespace cistern::layout {
namespace {

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("config: ", what));
}

// "bf16" of "bfloat16"; empty when the config does not say.
absl::StatusOr<std::string> ReadDtype(ConfigReader& config) {
  std::string dtype = config.Text("dtype");
  if (dtype.empty()) dtype = config.Text("torch_dtype");
  if (dtype.empty()) return dtype;
  if (dtype == "bfloat16") return std::string("bf16");
  if (dtype == "float16") return std::string("fp16");
  return Invalid(
      absl::StrCat("torch_dtype is '", dtype, "'; known are bfloat16 and float16, or give the rows"));
}

absl::StatusOr<RowFormat> ReadFormat(ConfigReader& config, const ConfigQuery& query, const ModelType& type) {
  RowFormat format;
  std::string rows = query.rows;
  if (rows.empty()) {
    CISTERN_ASSIGN_OR_RETURN(rows, ReadDtype(config));
    if (rows.empty()) return Invalid("torch_dtype is missing; give the row format (--rows bf16)");
  }
  const size_t slash = rows.find('/');
  format.rows = rows.substr(0, slash);
  format.index = slash == std::string::npos ? format.rows : rows.substr(slash + 1);
  if (format.rows != "bf16" && format.rows != "fp16" && format.rows != "fp8")
    return Invalid(absl::StrCat("rows '", rows, "': known are bf16, fp16 and fp8"));
  if (slash != std::string::npos && !type.has_index)
    return Invalid(absl::StrCat("rows '", rows, "': a ", type.name, " has no index keys"));
  if (format.index != "bf16" && format.index != "fp16" && format.index != "fp8" && format.index != "fp4")
    return Invalid(absl::StrCat("rows '", rows, "': known for index keys are bf16, fp16, fp8 and fp4"));
  return format;
}

// Blocks, spans and stripes of the groups that stand.
absl::Status Finish(const ModelType& type, const ConfigQuery& query, Layout& layout) {
  if (query.block_tokens % type.row_tokens_max != 0) {
    return Invalid(absl::StrCat("block_tokens is ", query.block_tokens, "; a ", type.name, " has a row per ",
                                type.row_tokens_max, " tokens"));
  }
  layout.block_tokens = query.block_tokens != 0
                            ? query.block_tokens
                            : FitBlockTokens(layout, type.block_step, type.block_tokens_max);
  layout.unit_tokens = layout.align_tokens = layout.block_tokens;
  for (Group& group : layout.groups) {
    if (group.family == Family::kTailWindow || group.family == Family::kTailState) FitSpans(layout, group);
  }
  layout.stripe_layers = FitStripeLayers(layout);
  return Validate(layout);
}

}  // namespace

std::vector<std::string> KnownModelTypes() {
  std::vector<std::string> names;
  for (const ModelType& type : ModelTypes()) names.emplace_back(type.name);
  return names;
}

absl::StatusOr<Layout> FromModelConfig(std::string_view json, const ConfigQuery& query) {
  if (json.size() > kConfigBytesMax)
    return Invalid(absl::StrCat(json.size(), " bytes, above the limit of ", kConfigBytesMax));
  const nlohmann::json whole = nlohmann::json::parse(json, nullptr, false);
  if (!whole.is_object()) return Invalid("no JSON object");
  // A model that also sees or hears keeps the language model's config inside.
  const auto inner = whole.find("text_config");
  const bool nested = inner != whole.end() && inner->is_object();
  ConfigReader config(nested ? *inner : whole, nested ? "text_config." : "");
  config.Ignore({"use_cache"});
  const std::string name = config.Text("model_type");
  const auto type = std::find_if(ModelTypes().begin(), ModelTypes().end(),
                                 [&](const ModelType& one) { return one.name == name; });
  if (type == ModelTypes().end()) {
    return Invalid(absl::StrCat("model_type '", name.substr(0, kNameBytesMax), "' is unknown; known are ",
                                absl::StrJoin(KnownModelTypes(), ", ")));
  }
  CISTERN_ASSIGN_OR_RETURN(const RowFormat format, ReadFormat(config, query, *type));
  Layout layout;
  layout.model = name;
  layout.rows = format.index == format.rows ? format.rows : absl::StrCat(format.rows, "/", format.index);
  layout.block_tokens = type->block_step;
  type->build(config, format, query, layout);
  config.RefuseUnasked();
  if (const nlohmann::json* quantised = config.Object("quantization_config"); quantised != nullptr) {
    const auto scheme = quantised->find("kv_cache_scheme");
    if (scheme != quantised->end() && !scheme->is_null())
      config.Refuse("quantization_config.kv_cache_scheme", "is given; say by --rows what engines store");
  }
  CISTERN_RETURN_IF_ERROR(config.status());
  if (!query.model.empty()) layout.model = query.model;
  CISTERN_RETURN_IF_ERROR(Finish(*type, query, layout));
  return layout;
}

}  // namespace cistern::layout
