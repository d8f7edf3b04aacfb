#pragma once

namespace cistern {

// What every program says with --version; CMakeLists.txt and the Python package have the same.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace cistern
