#pragma once

#include "client/cli/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cistern {

// `cistern layout …` with its own commands.
void AddLayout(CLI::App& app, CliOptions& out);
// `memory` under `cistern calc`.
void AddCalcMemory(CLI::App* calc, CliOptions& out);

}  // namespace cistern
