#pragma once

#include <string_view>

namespace cistern {

// The data files of core/calc/data as they were when this was built.
std::string_view EmbeddedModels();
std::string_view EmbeddedProviders();

}  // namespace cistern
