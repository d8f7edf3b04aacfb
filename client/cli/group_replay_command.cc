#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/group_replay.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"
#include "client/cli/replay_output.h"
#include "client/cli/store_memory.h"
#include "core/group_layout.h"
#include "core/tail_simulation.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

double Ratio(uint64_t part, uint64_t of) {
  return of == 0 ? 0.0 : Rounded(static_cast<double>(part) / static_cast<double>(of), 6);
}

Json GroupJson(GroupReplay& replay, const Layout& layout, const ReplayOptions& options) {
  Json out = ReplayTotalsJson(replay.totals(), replay.reasons());
  out["layout"] = layout.model;
  out["scale"] = options.scale;
  out["retention"] = options.retention;
  const WholeTotals& whole = replay.whole();
  out["whole_blocks"] = Json{{"blocks", whole.blocks},
                             {"hit_blocks", whole.hit_blocks},
                             {"hit_ratio", Ratio(whole.hit_blocks, whole.blocks)},
                             {"ideal_hit_ratio", Ratio(whole.ideal_hit_blocks, whole.blocks)}};
  out["tails_stored"] = replay.tails_stored();
  out["junctions_stored"] = replay.junctions_stored();
  out["groups"] = Json::array();
  uint64_t history = 0, all = 0;
  for (const GroupTotals& group : replay.groups()) {
    out["groups"].push_back(Json{{"name", group.group.name},
                                 {"family", group.group.family},
                                 {"verified_parts", group.verified_parts},
                                 {"bytes_written", group.bytes_written}});
    all += group.bytes_written;
    if (group.group.family == "history") history += group.bytes_written;
  }
  out["bytes_over_history"] = Ratio(all, history);
  return out;
}

std::string GroupText(const Json& r, bool verified) {
  std::vector<std::vector<std::string>> rows = ReplayTotalsRows(r, verified);
  for (const char* name : {"layout", "retention"}) rows.push_back({name, r[name].get<std::string>()});
  if (r["scale"] != 1) rows.push_back({"parts have 1 / of their bytes", r["scale"].dump()});
  rows.push_back(
      {"tails stored, of them junctions", r["tails_stored"].dump() + ", " + r["junctions_stored"].dump()});
  rows.push_back({"hit ratio of whole blocks, ideal",
                  FormatNumber(r["whole_blocks"]["hit_ratio"].get<double>()) + " of " +
                      FormatNumber(r["whole_blocks"]["ideal_hit_ratio"].get<double>())});
  rows.push_back({"bytes written over history", r["bytes_over_history"].dump()});
  for (const Json& group : r["groups"]) {
    rows.push_back(
        {"group " + group["name"].get<std::string>() + " (" + group["family"].get<std::string>() + ")",
         group["verified_parts"].dump() + " parts verified, " + group["bytes_written"].dump() +
             " bytes written"});
  }
  return FormatTable(rows);
}

}  // namespace

int RunGroupReplay(const CliOptions& options, TraceReader& trace, Client& client, const Layout& layout) {
  const absl::StatusOr<TailRetention> retention = ParseTailRetention(options.replay.retention);
  if (!retention.ok()) return Fail(options.json, std::string(retention.status().message()));
  const size_t bytes = GroupReplay::MemoryFor(layout);
  StoreMemory store(client, bytes);
  std::vector<std::byte> load(bytes);
  GroupReplay replay(options.replay, *retention, client, layout,
                     {.load = load.data(), .store = store.data(), .bytes = bytes});
  const Interrupt interrupt;
  const absl::Status ran = replay.Run(trace);
  const Json result = GroupJson(replay, layout, options.replay);
  const ReplayTotals& totals = replay.totals();
  if (const std::string why = NothingRead(options.replay.file, totals.requests, totals.broken_lines);
      ran.ok() && !why.empty() && !totals.interrupted) {
    return Fail(options.json, why);
  }
  if (!ran.ok()) Note(std::string(ran.message()));
  PrintResult(options.json, result, GroupText(result, options.replay.verify));
  if (!ran.ok()) return kExitError;
  return ReplayExit(totals);
}

// What the retention policies would hit and cost, with the same policy code and no cluster.
int RunReplayDry(const CliOptions& options, const Layout& layout) {
  std::vector<std::string> names = {"ends", "junctions"};
  if (options.replay.retention != "ends" && options.replay.retention != "junctions") {
    names.push_back(options.replay.retention);
  }
  Json out{{"trace", options.replay.file}, {"layout", layout.model}, {"rows", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"retention", "hit ratio", "ideal", "tails", "junctions", "bytes over history"}};
  for (const std::string& name : names) {
    const absl::StatusOr<TailRetention> retention = ParseTailRetention(name);
    if (!retention.ok()) return Fail(options.json, std::string(retention.status().message()));
    absl::StatusOr<std::unique_ptr<TraceReader>> trace = TraceReader::Open(options.replay.file);
    if (!trace.ok()) return Fail(options.json, std::string(trace.status().message()));
    TraceRequest request;
    std::unique_ptr<TailSimulation> sim;
    uint32_t id_tokens = kTraceBlockTokensDefault;
    uint64_t broken = 0;
    while ((options.replay.requests == 0 || sim == nullptr ||
            sim->totals().requests < options.replay.requests) &&
           (*trace)->Next(request, [&broken](uint64_t, std::string_view) { ++broken; })) {
      if (sim == nullptr) {
        id_tokens = request.block_tokens;
        sim = std::make_unique<TailSimulation>(*retention, id_tokens);
      }
      sim->Request(request.hash_ids, request.input_tokens);
    }
    const TailSimulation::Totals totals = sim == nullptr ? TailSimulation::Totals{} : sim->totals();
    if (const std::string why = NothingRead(options.replay.file, totals.requests, broken); !why.empty())
      return Fail(options.json, why);
    const GroupLayout& groups = *layout.groups;
    const uint64_t block_bytes = groups.HistoryBlockBytes() * id_tokens / layout.block_tokens;
    const double bytes =
        totals.BytesOverHistory(block_bytes, groups.TailAt(uint64_t{id_tokens} << 16).TotalBytes());
    out["rows"].push_back(Json{{"retention", name},
                               {"hit_ratio", Rounded(totals.HitRatio(), 6)},
                               {"ideal_hit_ratio", Rounded(totals.IdealRatio(), 6)},
                               {"tails", totals.tails},
                               {"junctions", totals.junctions},
                               {"bytes_over_history", Rounded(bytes, 6)}});
    rows.push_back({name, FormatNumber(totals.HitRatio()), FormatNumber(totals.IdealRatio()),
                    std::to_string(totals.tails), std::to_string(totals.junctions), FormatNumber(bytes)});
  }
  PrintResult(options.json, out, FormatTable(rows));
  return kExitDone;
}

}  // namespace cistern
