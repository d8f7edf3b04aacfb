#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/layout/layout.h"

// The layouts that come with the house: docs/layouts/*.textproto, built into every binary that links this, so
// that they are found without a folder.
namespace cistern {

struct ShippedLayout {
  std::string name{};  // The file's name without its ending: "deepseek-v4-pro-fp8-fp4".
  std::string text{};  // The file, comments and all.
  layout::Layout layout{};
  LayoutId id{};
};

// All of them, by name; each has passed Validate (a file that does not is a bug that a test finds). Any
// thread.
const std::vector<ShippedLayout>& ShippedLayouts();

// `name` is a shipped layout's name; a model's, which means the rows that engines serve; a model with its
// rows behind a colon ("deepseek-v4-pro:fp8/fp4"); or a file, when it has a '/' or ends in .textproto.
// NotFound names what is near and what there is; InvalidArgument says what is wrong with a file.
absl::StatusOr<ShippedLayout> FindLayout(std::string_view name);
// The same for a model and a row format; empty rows mean those that engines serve. NotFound lists the model's
// rows.
absl::StatusOr<ShippedLayout> FindLayout(std::string_view model, std::string_view rows);

// A layout file that a user names. NotFound, or InvalidArgument with the place.
absl::StatusOr<ShippedLayout> ReadLayoutFile(const std::string& path);

}  // namespace cistern
