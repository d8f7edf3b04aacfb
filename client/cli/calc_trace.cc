#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/broken_lines.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "client/cli/replay_output.h"
#include "core/calc/capacity_plan.h"
#include "core/calc/economics.h"
#include "core/calc/trace_profile.h"
#include "core/trace_reader.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

constexpr double kSharesOfIdeal[] = {0.5, 0.8, 0.9, 0.95, 0.99, 1};

TraceProfileOptions ProfileOptions(const CalcTraceOptions& o) {
  const auto ms = [](double seconds) { return static_cast<uint64_t>(std::llround(seconds * 1e3)); };
  TraceProfileOptions options;
  options.hot_ms = ms(o.hot_s);
  options.warm_ms = ms(o.warm_s);
  if (!o.ttls_s.empty()) {
    options.ttls_ms.clear();
    options.ttls_ms.reserve(o.ttls_s.size());
    for (const double seconds : o.ttls_s) options.ttls_ms.push_back(ms(seconds));
  }
  return options;
}

// Reads the log to its end, or as far as asked; broken lines are named and left out.
absl::Status ReadLog(const CalcTraceOptions& o, TraceReader& reader, TraceProfile& profile,
                     const BrokenLines& broken) {
  for (TraceRequest request;
       (o.requests == 0 || profile.requests() < o.requests) && reader.Next(request, broken);) {
    if (absl::Status added = profile.Add(request); !added.ok()) return added;
  }
  broken.TellRest();
  return reader.status();
}

// A whole number as far as it fits one.
Json WholeBytes(double bytes) {
  return bytes < 9e18 ? Json(static_cast<uint64_t>(std::llround(bytes))) : Json(bytes);
}

Json RowJson(const CapacityRow& row, double unique) {
  return Json{{"size_fraction", Rounded(unique > 0 ? static_cast<double>(row.blocks) / unique : 0)},
              {"blocks", row.blocks},
              {"bytes", WholeBytes(row.bytes)},
              {"hit_ratio", Rounded(row.hit_ratio)},
              {"miss_ratio", Rounded(1 - row.hit_ratio)},
              {"ram_usd_month", Rounded(row.ram_usd_month)},
              {"nvme_usd_month", Rounded(row.nvme_usd_month)},
              {"saved_usd_month", Rounded(row.saved_usd_month)}};
}

double Share(uint64_t part, uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

// What the log is and how it reuses, whatever the cache.
Json LogJson(const CalcTraceOptions& o, const TraceProfile& p, uint64_t broken_lines) {
  Json out{{"trace", o.file}, {"requests", p.requests()}, {"broken_lines", broken_lines}};
  out["out_of_order"] = p.out_of_order();
  out["span_s"] = p.span_s();
  out["block_tokens"] = p.block_tokens();
  out["blocks"] = p.references();
  out["unique_blocks"] = p.unique_blocks();
  out["input_tokens"] = p.input_tokens();
  out["output_tokens"] = p.output_tokens();
  out["ideal_hit_ratio"] = Rounded(p.IdealHitRatio());
  out["ideal_token_hit_ratio"] = Rounded(Share(p.hit_tokens(), p.input_tokens()));
  out["requests_with_hit"] = Rounded(Share(p.requests_with_hit(), p.requests()));
  out["requests_all_hit"] = Rounded(Share(p.requests_all_hit(), p.requests()));
  out["blocks_used_once"] = Rounded(Share(p.BlocksUsedOnce(), p.unique_blocks()));
  out["hottest_percent_share"] = Rounded(p.HottestShare(0.01));
  Json distance, gap;
  for (const auto& [name, share] : {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)}) {
    distance[name] = p.DistancePercentile(share);
    gap[name] = p.GapPercentileSeconds(share);
  }
  out["reuse_distance_blocks"] = distance;
  out["reuse_gap_s"] = gap;
  out["ttl"] = Json::array();
  for (size_t i = 0; i < p.options().ttls_ms.size(); ++i) {
    out["ttl"].push_back(Json{{"seconds", static_cast<double>(p.options().ttls_ms[i]) / 1e3},
                              {"hit_ratio", Rounded(p.TtlHitRatio(i))}});
  }
  return out;
}

Json ToJson(const CalcTraceOptions& o, const TraceProfile& p, const CapacityPlan& plan,
            const CapacityPrices& prices, uint64_t broken_lines) {
  Json out = LogJson(o, p, broken_lines);
  const auto unique = static_cast<double>(p.unique_blocks());
  out["temperature"] = Json::array();
  const auto temperatures = p.Temperatures();
  for (size_t i = 0; i < kTemperatures; ++i) {
    out["temperature"].push_back(
        Json{{"class", TemperatureName(static_cast<Temperature>(i))},
             {"blocks", temperatures[i].blocks},
             {"bytes", WholeBytes(static_cast<double>(temperatures[i].blocks) * plan.BlockBytes())},
             {"reuses", temperatures[i].reuses}});
  }
  out["model"] = o.model;
  out["bytes_per_token"] = prices.bytes_per_token;
  out["usd_per_mtoken"] = Rounded(prices.usd_per_prefill_token * 1e6);
  out["curve"] = Json::array();
  const std::vector<double> usual = {1, 2, 5, 10, 20, 50, 100};
  for (const double percent : o.sizes.empty() ? usual : o.sizes)
    out["curve"].push_back(RowJson(plan.OfBlocks(static_cast<uint64_t>(percent / 100 * unique)), unique));
  out["targets"] = Json::array();
  for (const double share : kSharesOfIdeal) {
    Json row{{"share_of_ideal", share}};
    row.update(RowJson(plan.OfBlocks(p.BlocksForShare(share)), unique));
    out["targets"].push_back(std::move(row));
  }
  const auto stay = [&](double usd_per_gb_month) {
    const double seconds = plan.BreakEvenStaySeconds(usd_per_gb_month);
    return std::isfinite(seconds) ? Json(Rounded(seconds)) : Json();
  };
  out["break_even_stay_s"] =
      Json{{"ram", stay(prices.ram_usd_per_gb_month)}, {"nvme", stay(prices.nvme_usd_per_gb_month)}};
  if (o.ram_bytes > 0 || o.nvme_bytes > 0) {
    const TieredPlan tiers = plan.OfTiers(o.ram_bytes, o.nvme_bytes);
    out["tiers"] = Json{{"ram_bytes", o.ram_bytes},
                        {"nvme_bytes", o.nvme_bytes},
                        {"ram_hit_ratio", Rounded(tiers.ram.hit_ratio)},
                        {"nvme_hit_ratio", Rounded(tiers.all.hit_ratio - tiers.ram.hit_ratio)},
                        {"hit_ratio", Rounded(tiers.all.hit_ratio)},
                        {"usd_month", Rounded(tiers.usd_month)},
                        {"saved_usd_month", Rounded(tiers.all.saved_usd_month)}};
  }
  return out;
}

std::string Cell(const Json& value) { return FormatNumber(value.get<double>()); }
std::string Gigabytes(const Json& bytes) { return FormatNumber(bytes.get<double>() / 1e9); }

std::string LogText(const Json& r) {
  const auto triple = [&r](const char* name) {
    return Cell(r[name]["p50"]) + " / " + Cell(r[name]["p90"]) + " / " + Cell(r[name]["p99"]);
  };
  std::string text = FormatTable({{"requests", r["requests"].dump()},
                                  {"blocks", r["blocks"].dump()},
                                  {"distinct blocks", r["unique_blocks"].dump()},
                                  {"ideal hit ratio", Cell(r["ideal_hit_ratio"])},
                                  {"  of tokens", Cell(r["ideal_token_hit_ratio"])},
                                  {"requests with a hit", Cell(r["requests_with_hit"])},
                                  {"blocks used once", Cell(r["blocks_used_once"])},
                                  {"references to the hottest 1 %", Cell(r["hottest_percent_share"])},
                                  {"reuse distance, blocks p50 / p90 / p99", triple("reuse_distance_blocks")},
                                  {"reuse gap, s p50 / p90 / p99", triple("reuse_gap_s")}});
  std::vector<std::vector<std::string>> rows = {{"lifetime s", "hit ratio"}};
  for (const Json& row : r["ttl"]) rows.push_back({Cell(row["seconds"]), Cell(row["hit_ratio"])});
  text += "\n";
  text += FormatTable(rows);
  rows = {{"blocks", "count", "GB", "reuses"}};
  for (const Json& row : r["temperature"])
    rows.push_back({row["class"].get<std::string>(), row["blocks"].dump(), Gigabytes(row["bytes"]),
                    row["reuses"].dump()});
  text += "\n";
  text += FormatTable(rows);
  return text;
}

std::string ToText(const Json& r) {
  std::vector<std::vector<std::string>> rows = {
      {"cache", "blocks", "GB", "hit ratio", "RAM USD/month", "NVMe USD/month", "saves USD/month"}};
  const auto add = [&rows](const std::string& name, const Json& row) {
    rows.push_back({name, row["blocks"].dump(), Gigabytes(row["bytes"]), Cell(row["hit_ratio"]),
                    Cell(row["ram_usd_month"]), Cell(row["nvme_usd_month"]), Cell(row["saved_usd_month"])});
  };
  for (const Json& row : r["curve"])
    add(FormatNumber(100 * row["size_fraction"].get<double>()) + "% of all", row);
  for (const Json& row : r["targets"])
    add("for " + FormatNumber(100 * row["share_of_ideal"].get<double>()) + "% of ideal", row);
  std::string text = LogText(r) + "\n" + r["model"].get<std::string>() + ", " + Cell(r["bytes_per_token"]) +
                     " bytes a token, prefill at " + Cell(r["usd_per_mtoken"]) + " USD per million\n" +
                     FormatTable(rows);
  if (r.contains("tiers")) {
    const Json& t = r["tiers"];
    text += "\nRAM " + Gigabytes(t["ram_bytes"]) + " GB and NVMe " + Gigabytes(t["nvme_bytes"]) +
            " GB: hit ratio " + Cell(t["hit_ratio"]) + " (" + Cell(t["ram_hit_ratio"]) + " from RAM), " +
            Cell(t["usd_month"]) + " USD a month, saves " + Cell(t["saved_usd_month"]) + "\n";
  }
  if (r["out_of_order"] != 0)
    text += "\nnote: time goes backwards at " + r["out_of_order"].dump() +
            " requests; distances follow the order of the file\n";
  return text;
}

}  // namespace

int RunCalcTrace(const CliOptions& options) {
  const CalcTraceOptions& o = options.calc_trace;
  const auto models = LoadModels(options.calc_data.models_file);
  if (!models.ok()) return Fail(options.json, Words(models.status()));
  const auto model = FindModel(*models, o.model);
  if (!model.ok()) return Fail(options.json, "--model: " + Words(model.status()));
  const auto presets = LoadProviders(options.calc_data.providers_file);
  if (!presets.ok()) return Fail(options.json, Words(presets.status()));
  const auto preset = FindProvider(*presets, o.provider);
  if (!preset.ok()) return Fail(options.json, "--provider: " + Words(preset.status()));
  if (!preset->gpu)
    return Fail(options.json,
                "--provider " + preset->name +
                    " has no prices of RAM, NVMe and GPU time; use own-gpu or one of your own (--providers)");
  absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(o.file);
  if (!reader.ok()) return Fail(options.json, Words(reader.status()));

  TraceProfile profile(ProfileOptions(o));
  const BrokenLines broken(o.file);
  const absl::Status read = ReadLog(o, **reader, profile, broken);
  if (const std::string why = NothingRead(o.file, profile.requests(), broken.count());
      read.ok() && !why.empty())
    return Fail(options.json, why);
  CapacityPrices prices;
  prices.bytes_per_token = o.bytes_per_token > 0 ? o.bytes_per_token : model->kv_bytes_per_token;
  prices.ram_usd_per_gb_month = preset->gpu->ram_usd_per_gb_month;
  prices.nvme_usd_per_gb_month = preset->gpu->nvme_usd_per_gb_month;
  // A token of the log's mean prompt.
  const uint64_t mean = std::clamp<uint64_t>(
      profile.requests() == 0 ? 1 : profile.input_tokens() / profile.requests(), 1, kCalcTokensMax);
  prices.usd_per_prefill_token = o.input_price
                                     ? *o.input_price / 1e6
                                     : CountFlops(*model, 0, mean).total() / static_cast<double>(mean) *
                                           preset->gpu->UsdPerPrefillFlop();
  const Json result = ToJson(o, profile, CapacityPlan(profile, prices), prices, broken.count());
  if (!read.ok()) Note(Words(read));  // What was read so far is told.
  PrintResult(options.json, result, ToText(result));
  return read.ok() ? kExitDone : kExitError;
}

}  // namespace cistern
