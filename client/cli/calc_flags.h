#pragma once

#include "client/cli/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cistern {

// `cistern calc …` with its own commands.
void AddCalc(CLI::App& app, CliOptions& out);

}  // namespace cistern
