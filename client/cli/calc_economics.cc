#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/output.h"
#include "core/calc/economics.h"
#include "nlohmann/json.hpp"

namespace cistern {
namespace {

// Puts what the flags say in the place of the preset's.
void Override(const CalcEconomicsOptions& o, ProviderPreset& preset) {
  if (o.read) preset.read = o.read;
  if (o.write) preset.write = *o.write;
  if (o.min_prefix) preset.min_prefix_tokens = *o.min_prefix;
  if (o.lifetime_s) preset.lifetime_s = o.lifetime_s;
  if (o.input_price) preset.input_usd_per_mtoken = o.input_price;
  if (o.output_price) preset.output_usd_per_mtoken = o.output_price;
  if (o.storage_price) preset.storage_usd_per_mtoken_hour = o.storage_price;
}

// Flags that a preset of one's own hardware does not use, so that none is ignored in silence.
std::string Unused(const CalcEconomicsOptions& o, const ProviderPreset& preset) {
  if (!preset.gpu) return "";
  std::string flags;
  const auto add = [&flags](bool given, const char* flag) {
    if (given) flags += (flags.empty() ? "" : ", ") + std::string(flag);
  };
  add(o.read.has_value(), "--read");
  add(o.write.has_value(), "--write");
  add(o.min_prefix.has_value(), "--min-prefix");
  add(o.input_price.has_value(), "--input-price");
  add(o.output_price.has_value(), "--output-price");
  add(o.storage_price.has_value(), "--storage-price");
  return flags;
}

// The flag that has to be given and was not; the parser takes no 0.
const char* MissingTokens(const CalcEconomicsOptions& o) {
  if (o.prefix == 0) return "--prefix";
  if (o.fresh == 0) return "--new";
  return o.output == 0 ? "--output" : nullptr;
}

int List(bool json, const std::vector<ModelFacts>& models, const std::vector<ProviderPreset>& presets) {
  Json out;
  std::vector<std::vector<std::string>> rows = {
      {"provider", "write", "read", "minimum", "lifetime s", "read on", "source"}};
  out["providers"] = Json::array();
  for (const ProviderPreset& p : presets) {
    Json one{{"name", p.name}, {"aliases", p.aliases}, {"title", p.title}, {"write", p.write}};
    one["read"] = p.read ? Json(*p.read) : Json();
    one["min_prefix_tokens"] = p.min_prefix_tokens;
    one["lifetime_s"] = p.lifetime_s ? Json(*p.lifetime_s) : Json();
    one["input_usd_per_mtoken"] = p.input_usd_per_mtoken ? Json(*p.input_usd_per_mtoken) : Json();
    one["output_usd_per_mtoken"] = p.output_usd_per_mtoken ? Json(*p.output_usd_per_mtoken) : Json();
    one.update(Json{{"source", p.source}, {"date", p.date}, {"note", p.note}});
    out["providers"].push_back(std::move(one));
    rows.push_back({p.name, FormatNumber(p.write),
                    p.gpu    ? "counted"
                    : p.read ? FormatNumber(*p.read)
                             : "?",
                    std::to_string(p.min_prefix_tokens), p.lifetime_s ? std::to_string(*p.lifetime_s) : "?",
                    p.date, p.source});
  }
  std::string text = FormatTable(rows) + "\n";
  rows = {{"model", "weights a token", "KV bytes a token", "rows", "source"}};
  out["models"] = Json::array();
  for (const ModelFacts& m : models) {
    out["models"].push_back(Json{{"name", m.name},
                                 {"linear_params", m.linear_params},
                                 {"kv_bytes_per_token", m.kv_bytes_per_token},
                                 {"row_format", m.row_format},
                                 {"source", m.source},
                                 {"note", m.note}});
    rows.push_back({m.name, FormatNumber(m.linear_params / 1e9) + " B", FormatNumber(m.kv_bytes_per_token),
                    m.row_format, m.source});
  }
  PrintResult(json, out, text + FormatTable(rows));
  return kExitDone;
}

Json ToJson(const CalcEconomicsOptions& o, const ModelFacts& model, const ProviderPreset& preset,
            const Economics& e) {
  Json out{
      {"model", model.name}, {"provider", preset.name}, {"source", preset.source}, {"date", preset.date}};
  out["prefix_tokens"] = o.prefix;
  out["new_tokens"] = o.fresh;
  out["output_tokens"] = o.output;
  out["prefill_flops"] = Rounded(e.flops.total());
  out["prefill_flops_saved_ratio"] = Rounded(e.prefill_flops_saved_ratio);
  out["attention_flops_saved_ratio"] = Rounded(e.attention_flops_saved_ratio);
  out["families"] = Json::array();
  for (size_t i = 0; i < model.attention.size(); ++i) {
    const AttentionTerm& term = model.attention[i];
    out["families"].push_back(Json{{"family", term.family},
                                   {"layers", term.layers},
                                   {"flops", Rounded(e.flops.terms[i])},
                                   {"saved_ratio", Rounded(1 - e.flops_cached.terms[i] / e.flops.terms[i])}});
  }
  out["currency"] = e.in_usd ? "USD" : "plain input tokens";
  out["cost"] = Rounded(e.cost, 9);
  out["cost_without_cache"] = Rounded(e.cost_without_cache, 9);
  out["cost_of_writing"] = Rounded(e.cost_of_writing, 9);
  out["saving_ratio"] = Rounded(e.saving_ratio);
  out["break_even_reuses"] = e.break_even_reuses ? Json(*e.break_even_reuses) : Json();
  out["write"] = Rounded(e.write);
  out["read"] = Rounded(e.read);
  if (e.per_day) {
    out["per_day"] = Json{{"requests", o.requests_per_day},
                          {"hit_ratio", Rounded(e.per_day->hit_ratio)},
                          {"cost", Rounded(e.per_day->cost, 9)},
                          {"cost_without_cache", Rounded(e.per_day->cost_without_cache, 9)},
                          {"storage", Rounded(e.per_day->storage, 9)},
                          {"saved", Rounded(e.per_day->cost_without_cache - e.per_day->cost, 9)}};
  }
  out["notes"] = e.notes;
  return out;
}

std::string Percent(double ratio) { return FormatNumber(100 * ratio) + "%"; }

std::string Money(const Economics& e, double cost) {
  if (!e.in_usd) return FormatNumber(cost);
  char text[64];
  std::snprintf(text, sizeof(text), cost < 1 ? "%.6f" : "%.2f", cost);
  return text;
}

std::string ToText(const CalcEconomicsOptions& o, const ModelFacts& model, const ProviderPreset& preset,
                   const Economics& e) {
  std::string text = model.name + " at " + preset.title + " (" + preset.source + "; " + preset.date + ")\n\n";
  std::vector<std::vector<std::string>> rows = {{"FLOPs of the prefill", "total", "saved"}};
  rows.push_back({"all", FormatNumber(e.flops.total() / 1e12) + " T", Percent(e.prefill_flops_saved_ratio)});
  rows.push_back(
      {"attention", FormatNumber(e.flops.attention / 1e12) + " T", Percent(e.attention_flops_saved_ratio)});
  for (size_t i = 0; i < model.attention.size(); ++i) {
    const AttentionTerm& term = model.attention[i];
    rows.push_back({"  " + term.family + " x " + std::to_string(term.layers),
                    FormatNumber(e.flops.terms[i] / 1e12) + " T",
                    Percent(1 - e.flops_cached.terms[i] / e.flops.terms[i])});
  }
  text += FormatTable(rows) + "\n";
  rows = {{e.in_usd ? "cost in USD" : "cost in plain input tokens", "with cache", "without", "saved"}};
  const auto row = [&](const std::string& name, double with, double without) {
    rows.push_back({name, Money(e, with), Money(e, without), Percent(1 - with / without)});
  };
  row("request that hits", e.cost, e.cost_without_cache);
  row("request that writes", e.cost_of_writing, e.cost_without_cache);
  if (e.per_day)
    row(FormatNumber(o.requests_per_day) + " requests a day, " + Percent(e.per_day->hit_ratio) + " hit",
        e.per_day->cost, e.per_day->cost_without_cache);
  text += FormatTable(rows) + "\n";
  text +=
      e.break_even_reuses
          ? "the prefix pays from reuse " + std::to_string(*e.break_even_reuses) + " on (write " +
                FormatNumber(e.write) + ", read " + FormatNumber(e.read) + " of the plain price)\n"
          : "caching this prefix never pays: a read costs " + FormatNumber(e.read) + " of the plain price\n";
  for (const std::string& note : e.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace

int RunCalcEconomics(const CliOptions& options) {
  const CalcEconomicsOptions& o = options.calc_economics;
  const auto models = LoadModels(options.calc_data.models_file);
  if (!models.ok()) return Fail(options.json, Words(models.status()));
  const auto presets = LoadProviders(options.calc_data.providers_file);
  if (!presets.ok()) return Fail(options.json, Words(presets.status()));
  if (o.list) return List(options.json, *models, *presets);
  if (o.model.empty())
    return Fail(options.json, "--model is missing; 'cistern calc economics --list' shows those there are");
  if (const char* missing = MissingTokens(o); missing != nullptr)
    return Fail(options.json, std::string(missing) + " is missing; give a number of tokens, 1 or more");
  const auto model = FindModel(*models, o.model);
  if (!model.ok()) return Fail(options.json, "--model: " + Words(model.status()));
  auto preset = FindProvider(*presets, o.provider);
  if (!preset.ok()) return Fail(options.json, "--provider: " + Words(preset.status()));
  if (const std::string unused = Unused(o, *preset); !unused.empty())
    return Fail(options.json, unused + ": not with " + preset->name +
                                  ", whose prices are those of its gpu; change them in a file (--providers)");
  Override(o, *preset);
  const auto economics = ComputeEconomics(*model, *preset,
                                          {.prefix_tokens = o.prefix,
                                           .new_tokens = o.fresh,
                                           .output_tokens = o.output,
                                           .write_new = o.write_new,
                                           .requests_per_day = o.requests_per_day,
                                           .hit_ratio = o.hit_ratio});
  if (!economics.ok()) return Fail(options.json, "--" + Words(economics.status()));
  PrintResult(options.json, ToJson(o, *model, *preset, *economics), ToText(o, *model, *preset, *economics));
  return kExitDone;
}

}  // namespace cistern
