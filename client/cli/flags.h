#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/options.h"

namespace cistern {

// Fills `out` from the command line. Nothing: go on with out.command. Else the exit code: 0 after --help or
// --version, 2 for a wrong command or flag, which has been named in one line on stderr by then.
std::optional<int> ParseFlags(int argc, const char* const* argv, CliOptions& out);

// What a command takes, for docs/cli.md and its test.
struct CommandFlags {
  std::string command;
  std::vector<std::string> flags;  // Long names with their dashes, own ones only; sorted.
};
std::vector<CommandFlags> ListFlags();

}  // namespace cistern
