#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/layout_json.h"
#include "client/cli/output.h"
#include "core/calc/bar_chart.h"
#include "core/calc/memory.h"
#include "core/layout/geometry.h"
#include "nlohmann/json.hpp"
#include "proto/layout_catalog.h"

namespace cistern {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr size_t kChartColumns = 48;

std::string Gib(double bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f GiB", bytes / kGib);
  return text;
}
std::string Gib(uint64_t bytes) { return Gib(static_cast<double>(bytes)); }

double Ratio(uint64_t a, uint64_t b) { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }

// One of the things that the chart shows.
struct Counted {
  ShippedLayout shipped;
  calc::MemoryUse use;
};

absl::StatusOr<Counted> Count(absl::StatusOr<ShippedLayout> found, const calc::MemoryQuery& query) {
  if (!found.ok()) return found.status();
  absl::StatusOr<calc::MemoryUse> use = calc::ComputeMemory(found->layout, query);
  if (!use.ok()) return use.status();
  return Counted{*std::move(found), *std::move(use)};
}

// --dtype says other rows of the same model, whichever of its layouts --model names.
absl::StatusOr<ShippedLayout> Resolve(const std::string& model, const std::string& rows) {
  absl::StatusOr<ShippedLayout> named = FindLayout(model);
  if (rows.empty()) return named;
  return FindLayout(named.ok() ? named->layout.model : model, rows);
}

Json GroupsJson(const std::vector<calc::GroupMemory>& groups) {
  Json out = Json::array();
  for (const calc::GroupMemory& group : groups) {
    out.push_back(Json{{"name", group.name},
                       {"family", std::string(layout::FamilyName(group.family))},
                       {"bytes", group.bytes},
                       {"rank_bytes", group.rank_bytes}});
  }
  return out;
}

Json ToJson(const CalcMemoryOptions& o, const Counted& main, const std::vector<Counted>& others) {
  const calc::MemoryUse& use = main.use;
  Json out{{"model", main.shipped.layout.model},
           {"layout", main.shipped.name},
           {"rows", main.shipped.layout.rows},
           {"tokens", o.context},
           {"batch", o.batch},
           {"tp", o.tp},
           {"bytes", use.bytes},
           {"gib", static_cast<double>(use.bytes) / kGib},
           {"bytes_per_token", use.bytes_per_token},
           {"history_bytes", use.history_bytes},
           {"history_gib", static_cast<double>(use.history_bytes) / kGib},
           {"groups", GroupsJson(use.groups)},
           {"working", GroupsJson(use.working)},
           {"rank_bytes", use.rank_bytes},
           {"plain_gqa_bytes", use.plain_gqa_bytes},
           {"plain_gqa_ratio", Rounded(Ratio(use.history_bytes, use.plain_gqa_bytes))},
           {"compare", Json::array()}};
  for (const Counted& other : others) {
    out["compare"].push_back(Json{{"layout", other.shipped.name},
                                  {"bytes", other.use.bytes},
                                  {"history_bytes", other.use.history_bytes},
                                  {"ratio", Rounded(Ratio(other.use.history_bytes, use.history_bytes))}});
  }
  return out;
}

std::vector<calc::Bar> Bars(const Counted& main, const std::vector<Counted>& others) {
  const auto bar = [](const std::string& label, uint64_t bytes, const std::string& more, bool emphasis) {
    return calc::Bar{label, static_cast<double>(bytes), Gib(bytes) + more, emphasis};
  };
  std::vector<calc::Bar> bars;
  bars.push_back(bar(std::string("plain GQA, ")
                         .append(std::to_string(layout::ModelLayers(main.shipped.layout)))
                         .append(" layers"),
                     main.use.plain_gqa_bytes, "", false));
  char percent[32];
  std::snprintf(percent, sizeof(percent), " (%.2f%%)", 100 * Ratio(main.use.bytes, main.use.plain_gqa_bytes));
  bars.push_back(bar(main.shipped.name, main.use.bytes, percent, true));
  for (const Counted& other : others) bars.push_back(bar(other.shipped.name, other.use.bytes, "", false));
  return bars;
}

std::string ToText(const CalcMemoryOptions& o, const Counted& main, const std::vector<Counted>& others) {
  const calc::MemoryUse& use = main.use;
  std::string text = main.shipped.layout.model + ", rows " + main.shipped.layout.rows + ": " +
                     std::to_string(o.batch) + " x " + std::to_string(o.context) + " tokens\n\n";
  std::vector<std::vector<std::string>> rows = {
      {"group", "family", "bytes", "", std::string("a rank of ").append(std::to_string(o.tp))}};
  for (const calc::GroupMemory& group : use.groups) {
    rows.push_back({group.name, std::string(layout::FamilyName(group.family)), std::to_string(group.bytes),
                    Gib(group.bytes), Gib(group.rank_bytes)});
  }
  rows.push_back({"all", "", std::to_string(use.bytes), Gib(use.bytes), ""});
  text += FormatTable(rows);
  if (use.bytes != use.history_bytes)
    text += "history alone, as papers count: " + Gib(use.history_bytes) + "\n";
  text += "history bytes a token: " + FormatNumber(use.bytes_per_token) + "\n";
  if (use.working_bytes > 0) {
    text += "not counted: half-made rows of the compressors, " + Gib(use.working_bytes) + " in engines\n";
  }
  for (const Counted& other : others) {
    text += other.shipped.name + " has " + FormatNumber(Ratio(other.use.history_bytes, use.history_bytes)) +
            " times the history\n";
  }
  return text + "\n" + calc::TextChart(Bars(main, others), kChartColumns);
}

// Adds what --hbm asks. An error is about the numbers given.
absl::Status AddFit(const CalcMemoryOptions& o, const Counted& main, Json& out, std::string& text) {
  const auto fit = calc::ComputeFit(
      main.shipped.layout, {.tokens = o.context, .batch = 1, .tp = o.tp},
      {.hbm_bytes = o.hbm_bytes, .weights_bytes = o.weights_bytes, .reserve_bytes = o.reserve_bytes});
  if (!fit.ok()) return fit.status();
  out["fit"] = Json{{"weights_fit", fit->weights_fit},
                    {"free_bytes", fit->free_bytes},
                    {"sequence_bytes", fit->sequence_bytes},
                    {"sequences", fit->sequences},
                    {"longest_tokens", fit->longest_tokens}};
  if (!fit->weights_fit) {
    text += "\nthe weights do not fit: no sequence\n";
    return absl::OkStatus();
  }
  text += "\n";
  text += std::to_string(fit->sequences) + " such sequences fit: " + Gib(fit->free_bytes) +
          " free on each of " + std::to_string(o.tp) + " devices, " + Gib(fit->sequence_bytes) +
          " a sequence; alone, one may have " + std::to_string(fit->longest_tokens) + " tokens\n";
  return absl::OkStatus();
}

bool WriteFile(const std::string& path, const std::string& body) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << body;
  file.close();
  return file.good();
}

}  // namespace

int RunCalcMemory(const CliOptions& options) {
  const CalcMemoryOptions& o = options.calc_memory;
  const calc::MemoryQuery query{.tokens = o.context, .batch = o.batch, .tp = o.tp};
  const absl::StatusOr<Counted> main = Count(Resolve(o.model, o.rows), query);
  if (!main.ok()) return Fail(options.json, ErrorText(main.status()));
  std::vector<Counted> others;
  for (const std::string& name : o.compare) {
    absl::StatusOr<Counted> other = Count(FindLayout(name), query);
    if (!other.ok()) return Fail(options.json, "--compare: " + ErrorText(other.status()));
    others.push_back(*std::move(other));
  }
  Json out = ToJson(o, *main, others);
  std::string text = ToText(o, *main, others);
  if (o.hbm_bytes > 0) {
    if (const absl::Status status = AddFit(o, *main, out, text); !status.ok())
      return Fail(options.json, ErrorText(status));
  } else if (o.weights_bytes > 0 || o.reserve_bytes > 0) {
    return Fail(options.json,
                "--weights and --reserve say what is beside the KV of a device; give --hbm too");
  }
  if (!o.svg.empty()) {
    const std::string title = main->shipped.layout.model + " (" + main->shipped.layout.rows + "), " +
                              std::to_string(o.batch) + " x " + std::to_string(o.context) + " tokens";
    if (!WriteFile(o.svg, calc::SvgChart(title, Bars(*main, others))))
      return Fail(options.json, "cannot write " + o.svg + "; give --svg a file in a folder that exists");
    out["svg"] = o.svg;
    text += "\nchart: " + o.svg + "\n";
  }
  PrintResult(options.json, out, text);
  return kExitDone;
}

}  // namespace cistern
