#pragma once

#include "client/cli/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cistern {

// `quota` and `top`.
void AddTierCommands(CLI::App& app, CliOptions& out);
// --hbm and --hbm-device of `up`.
void AddHbm(CLI::App* up, CliOptions& out);
// --ttl, --ttl-slides and --pin of a command that stores.
void AddRetention(CLI::App* app, KeepFlags& out);

}  // namespace cistern
