#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/output.h"
#include "client/cli/replay.h"

namespace cistern {

// What every replay says: DESIGN §12's fields, without its groups.
Json ReplayTotalsJson(ReplayTotals& totals, const std::vector<std::pair<std::string, uint64_t>>& reasons);
// The same as rows of a table.
std::vector<std::vector<std::string>> ReplayTotalsRows(const Json& result, bool verified);
// The exit code of a replay that ran.
int ReplayExit(const ReplayTotals& totals);
// One line for people when a file has lines and none of them is a request; else empty.
std::string NothingRead(const std::string& file, uint64_t requests, uint64_t broken_lines);

}  // namespace cistern
