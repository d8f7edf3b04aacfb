#pragma once

namespace cistern {

// What every program says with --version: the project's in CMakeLists.txt, where alone it stands.
extern const char kVersion[];

}  // namespace cistern
