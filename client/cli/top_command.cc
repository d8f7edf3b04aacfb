#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/internal/admin.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr std::chrono::milliseconds kNodeDeadline{300};

}  // namespace

int RunTop(const CliOptions& options) {
  Result<std::unique_ptr<Client>> client =
      ConnectClient(options, [](ClientOptions& o) { o.window_bytes = 0; });
  if (!client.ok()) return Fail(options.json, client.status().message());
  Json nodes = Json::array(), runs = Json::array();
  for (const NodeEntry& node : internal::Map(*client.value()).nodes) {
    const absl::StatusOr<NodeStats> live = internal::FetchNodeStats(*client.value(), node.id, kNodeDeadline);
    if (!live.ok()) {
      nodes.push_back(Json{{"id", node.id}, {"stale_why", Words(live.status())}});
      continue;
    }
    Json row{{"id", node.id}, {"hit_blocks", live->hit_blocks}, {"miss_blocks", live->miss_blocks}};
    for (const char* name : {"runs_hot", "runs_warm", "runs_cold"}) {
      const auto at = live->counters.find(name);
      row[name] = at == live->counters.end() ? 0 : at->second;
    }
    for (const TierStats& tier : live->tiers) row[tier.tier + "_used_bytes"] = tier.used_bytes;
    nodes.push_back(row);
    for (const RunStats& run : live->runs) {
      runs.push_back(Json{{"node", node.id},
                          {"run", run.run},
                          {"temperature", run.temperature},
                          {"uses", run.uses},
                          {"blocks", run.blocks},
                          {"idle_ms", run.idle_ms}});
    }
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Json& a, const Json& b) {
    return a["uses"].get<uint64_t>() > b["uses"].get<uint64_t>();
  });
  std::vector<std::vector<std::string>> of_nodes = {{"node", "hits", "misses", "hot", "warm", "cold"}};
  for (const Json& node : nodes) {
    if (node.contains("stale_why")) {
      of_nodes.push_back(
          {node["id"].get<std::string>(), node["stale_why"].get<std::string>(), "", "", "", ""});
      continue;
    }
    of_nodes.push_back({node["id"].get<std::string>(), node["hit_blocks"].dump(), node["miss_blocks"].dump(),
                        node["runs_hot"].dump(), node["runs_warm"].dump(), node["runs_cold"].dump()});
  }
  std::vector<std::vector<std::string>> of_runs = {
      {"run", "node", "temperature", "uses", "blocks", "idle s"}};
  for (const Json& run : runs) {
    of_runs.push_back({run["run"].get<std::string>(), run["node"].get<std::string>(),
                       run["temperature"].get<std::string>(), run["uses"].dump(), run["blocks"].dump(),
                       std::to_string(run["idle_ms"].get<uint64_t>() / 1000)});
  }
  PrintResult(options.json, Json{{"nodes", nodes}, {"runs", runs}},
              FormatTable(of_nodes) + FormatTable(of_runs));
  return kExitDone;
}

}  // namespace cistern
