#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/broken_lines.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/svg_plot.h"
#include "core/eviction/baselines/baselines.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

std::string Ratio(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

std::string Percent(double share) { return FormatNumber(Rounded(100 * share)) + "%"; }

uint32_t CapacityOf(const ReplayTrace& trace, double share) {
  // A hair more, so that 0.07 of 100 is 7.
  return std::max(1u, static_cast<uint32_t>(trace.unique * share * (1 + 1e-12)));
}

absl::StatusOr<ReplayScore> Run(const std::string& policy, const ReplayTrace& trace, double share,
                                const SimOptions& sim) {
  const uint32_t capacity = CapacityOf(trace, share);
  if (sim.flow == "node" || sim.nodes > 1) {
    const ReplayFlow flow = sim.flow == "node" ? ReplayFlow::kNode : ReplayFlow::kPlain;
    return ReplayPolicy(policy, trace, capacity, flow, sim.nodes);
  }
  return SimulatePolicy(policy, trace, capacity);
}

// One row a policy and size, and what a person sees of them.
absl::Status AddRows(const ReplayTrace& trace, const SimOptions& sim, Json& out, std::string& text,
                     std::vector<PlotSeries>& plot) {
  std::vector<std::string> policies = sim.policies;
  if (policies.empty())
    policies = sim.flow == "node" || sim.nodes > 1
                   ? std::vector<std::string>(kNodePolicies.begin(), kNodePolicies.end())
                   : SimulatedPolicies();
  std::vector<std::vector<std::string>> table = {{"policy"}};
  for (const double share : sim.sizes) table[0].push_back(Percent(share));
  out["rows"] = Json::array();
  for (const std::string& policy : policies) {
    table.push_back({policy});
    plot.push_back({policy, {}});
    for (const double share : sim.sizes) {
      absl::StatusOr<ReplayScore> score = Run(policy, trace, share, sim);
      const std::vector<std::string>& known = SimulatedPolicies();
      if (!score.ok() && std::find(known.begin(), known.end(), policy) != known.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            policy, " is no policy of nodes, and --nodes above 1 and --flow node take those alone: ",
            absl::StrJoin(kNodePolicies, ", ")));
      }
      if (!score.ok()) return std::move(score).status();
      const double ratio = score->HitRatio();
      out["rows"].push_back(
          Json{{"policy", policy}, {"size_fraction", Rounded(share)}, {"hit_ratio", Rounded(ratio, 9)}});
      table.back().push_back(Ratio(ratio));
      plot.back().points.emplace_back(share, ratio);
    }
    std::sort(plot.back().points.begin(), plot.back().points.end());
  }
  text += FormatTable(table);
  return absl::OkStatus();
}

void AddTtls(const ReplayTrace& trace, const SimOptions& sim, double ideal, Json& out, std::string& text) {
  if (sim.ttls_ms.empty()) return;
  std::vector<std::vector<std::string>> table = {{"sliding TTL", "hit ratio", "of ideal"}};
  out["ttls"] = Json::array();
  for (const int64_t ttl : sim.ttls_ms) {
    const double ratio = ReplaySlidingTtl(trace, ttl).HitRatio();
    const double share = ideal > 0 ? ratio / ideal : 0;
    out["ttls"].push_back(Json{{"ttl_s", Rounded(static_cast<double>(ttl) / 1000)},
                               {"hit_ratio", Rounded(ratio, 9)},
                               {"ideal_share", Rounded(share, 9)}});
    table.push_back({FormatNumber(static_cast<double>(ttl) / 1000) + " s", Ratio(ratio), Percent(share)});
  }
  text += "\n";
  text += FormatTable(table);
}

}  // namespace

int RunSimEviction(const CliOptions& options) {
  const SimOptions& sim = options.sim;
  const BrokenLines broken(sim.file);
  const absl::StatusOr<ReplayTrace> trace = LoadReplayTrace(sim.file, broken);
  broken.TellRest();
  if (!trace.ok()) return Fail(options.json, Words(trace.status()));
  const ReplayScore ideal = ReplaySlidingTtl(*trace, std::numeric_limits<int64_t>::max());
  Json out;
  out["trace"] = sim.file;
  out["requests"] = trace->requests.size();
  out["blocks"] = ideal.blocks;
  out["unique_blocks"] = trace->unique;
  out["nodes"] = sim.nodes;
  out["ideal_hit_ratio"] = Rounded(ideal.HitRatio(), 9);
  out["broken_lines"] = broken.count();
  std::string text = std::to_string(trace->requests.size()) + " requests, " + std::to_string(ideal.blocks) +
                     " blocks, " + std::to_string(trace->unique) + " of them different; without end " +
                     Ratio(ideal.HitRatio()) + " hit\n\n";
  std::vector<PlotSeries> plot;
  if (const absl::Status done = AddRows(*trace, sim, out, text, plot); !done.ok())
    return Fail(options.json, Words(done));
  AddTtls(*trace, sim, ideal.HitRatio(), out, text);
  if (!sim.plot.empty()) {
    std::ofstream file(sim.plot);
    file << DrawShares(std::filesystem::path(sim.file).filename().string() + ": block hit ratio",
                       "size, share of unique blocks", "", plot);
    file.close();
    if (!file)
      return Fail(options.json, "cannot write " + sim.plot + "; name a file in a folder that you may write");
    text += "\nplot: " + sim.plot + "\n";
  }
  PrintResult(options.json, out, text);
  return kExitDone;
}

}  // namespace cistern
