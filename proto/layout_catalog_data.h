#pragma once

#include <string_view>
#include <vector>

namespace cistern {

struct EmbeddedText {
  std::string_view name;  // The file's, without .textproto.
  std::string_view text;
};
// docs/layouts/*.textproto as they were when this was built, by name.
const std::vector<EmbeddedText>& EmbeddedLayouts();

}  // namespace cistern
