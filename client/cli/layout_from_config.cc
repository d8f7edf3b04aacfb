#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/layout_json.h"
#include "client/cli/output.h"
#include "core/layout/encoding.h"
#include "core/layout/model_config.h"
#include "nlohmann/json.hpp"
#include "proto/layout_text.h"

namespace cistern {

int RunLayoutFromConfig(const CliOptions& options) {
  const LayoutOptions& o = options.layout;
  std::error_code error;
  if (!std::filesystem::is_regular_file(o.config, error))
    return Fail(options.json, "there is no file " + o.config + "; give a model's config.json");
  if (std::filesystem::file_size(o.config, error) > layout::kConfigBytesMax)
    return Fail(options.json,
                o.config + ": above the limit of " + std::to_string(layout::kConfigBytesMax) + " bytes");
  std::ifstream file(o.config);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return Fail(options.json, "cannot read " + o.config);
  const absl::StatusOr<layout::Layout> layout = layout::FromModelConfig(
      text, {.model = o.model, .rows = o.rows, .state_dtype = o.state_dtype, .block_tokens = o.block_tokens});
  if (!layout.ok()) return Fail(options.json, o.config + ": " + ErrorText(layout.status()));
  const ShippedLayout made{.name = layout->model,
                           .text = FormatLayoutText(*layout),
                           .layout = *layout,
                           .id = layout::ComputeId(*layout)};
  Json out = LayoutJson(made);
  out["text"] = made.text;
  PrintResult(options.json, out, made.text);
  return kExitDone;
}

}  // namespace cistern
