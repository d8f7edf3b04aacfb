#include <string>
#include <vector>

// lint: allow(room) because the CLI links what it shows: the node's own code for the node's own files.
#include "cache_node/disk/fsck.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "nlohmann/json.hpp"

namespace cistern {

int RunFsck(const CliOptions& options) {
  const absl::StatusOr<FsckReport> report = CheckDataFolder(options.fsck.data_dir);
  if (!report.ok()) return Fail(options.json, std::string(report.status().message()));
  Json out;
  out["dir"] = report->dir;
  out["clean"] = report->clean();
  out["parts"] = report->parts;
  out["tails"] = report->tails;
  out["part_tails"] = report->part_tails;
  out["extents"] = report->extents;
  out["online"] = report->online;
  out["open_extents"] = report->open_extents;
  out["problem_count"] = report->problem_count;
  out["problems"] = Json::array();
  std::vector<std::vector<std::string>> rows = {{"kind", "where"}};
  for (const FsckProblem& problem : report->problems) {
    out["problems"].push_back(Json{{"kind", problem.kind}, {"where", problem.where}});
    rows.push_back({problem.kind, problem.where});
  }
  std::string text = report->dir + ": " + std::to_string(report->parts) + " parts, " +
                     std::to_string(report->tails) + " whole tails, in " + std::to_string(report->extents) +
                     " extents, " + std::to_string(report->problem_count) + " problems";
  if (report->online)
    text += "; a node has it, " + std::to_string(report->open_extents) + " extents it writes were left out";
  text += "\n";
  if (!report->problems.empty()) {
    text += FormatTable(rows);
    text +=
        "\nwhat is damaged is a miss, never wrong bytes; what to do: docs/operations.md, \"When something is "
        "wrong\"\n";
  }
  PrintResult(options.json, out, text);
  return report->clean() ? kExitDone : kExitShort;
}

}  // namespace cistern
