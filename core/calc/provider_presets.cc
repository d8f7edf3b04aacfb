#include "core/calc/provider_presets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/calc/embedded.h"
#include "core/calc/json_fields.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr double kMultipleMax = 100;
constexpr double kNone = -1;  // Below every range: the field was absent.

std::optional<double> Maybe(double value) {
  return value == kNone ? std::nullopt : std::optional<double>(value);
}

absl::StatusOr<GpuPrices> ParseGpu(const nlohmann::json& object, const std::string& where) {
  JsonFields fields(object, where + ", gpu");
  GpuPrices gpu;
  gpu.usd_per_hour = fields.Number("usd_per_hour", 0, kPriceMax);
  gpu.peak_tflops = fields.Number("peak_tflops", 1e-3, 1e9);
  gpu.prefill_utilisation = fields.Number("prefill_utilisation", 1e-6, 1);
  gpu.decode_utilisation = fields.Number("decode_utilisation", 1e-6, 1);
  gpu.watts = fields.NumberOr("watts", 0, 1e6, 0);
  gpu.usd_per_kwh = fields.NumberOr("usd_per_kwh", 0, kPriceMax, 0);
  gpu.load_gb_per_s = fields.Number("load_gb_per_s", 1e-6, 1e6);
  gpu.ram_usd_per_gb_month = fields.Number("ram_usd_per_gb_month", 0, kPriceMax);
  gpu.nvme_usd_per_gb_month = fields.Number("nvme_usd_per_gb_month", 0, kPriceMax);
  if (!(gpu.UsdPerSecond() > 0))
    fields.Refuse("usd_per_hour, watts and usd_per_kwh make a GPU that costs nothing");
  CISTERN_RETURN_IF_ERROR(fields.Finish());
  return gpu;
}

absl::StatusOr<ProviderPreset> ParseProvider(const nlohmann::json& object, std::string where) {
  if (object.is_object() && object.contains("name") && object["name"].is_string())
    absl::StrAppend(&where, " (", object["name"].get_ref<const std::string&>().substr(0, 40), ")");
  JsonFields fields(object, where);
  ProviderPreset preset;
  preset.name = fields.Text("name");
  preset.aliases = fields.Texts("aliases");
  preset.title = fields.TextOr("title", preset.name);
  preset.write = fields.NumberOr("write", 0, kMultipleMax, 1);
  preset.read = Maybe(fields.NumberOr("read", 0, kMultipleMax, kNone));
  preset.min_prefix_tokens = fields.CountOr("min_prefix_tokens", 0, uint64_t{1} << 27, 0);
  if (const uint64_t seconds = fields.CountOr("lifetime_s", 1, kLifetimeSecondsMax, 0); seconds > 0)
    preset.lifetime_s = seconds;
  const std::string storage = fields.TextOr("storage", "");
  preset.has_storage = storage == "token-hour";
  if (!storage.empty() && !preset.has_storage) fields.Refuse("field storage is not token-hour");
  preset.storage_usd_per_mtoken_hour =
      Maybe(fields.NumberOr("storage_usd_per_mtoken_hour", 0, kPriceMax, kNone));
  preset.input_usd_per_mtoken = Maybe(fields.NumberOr("input_usd_per_mtoken", 1e-9, kPriceMax, kNone));
  preset.output_usd_per_mtoken = Maybe(fields.NumberOr("output_usd_per_mtoken", 0, kPriceMax, kNone));
  preset.price_of = fields.TextOr("price_of", "");
  preset.source = fields.Text("source");
  preset.date = fields.Text("date");
  preset.note = fields.TextOr("note", "");
  const nlohmann::json* const gpu = fields.Value("gpu");
  CISTERN_RETURN_IF_ERROR(fields.Finish());
  if (gpu != nullptr) {
    CISTERN_ASSIGN_OR_RETURN(preset.gpu, ParseGpu(*gpu, where));
  }
  return preset;
}

}  // namespace

absl::StatusOr<std::vector<ProviderPreset>> ParseProviders(std::string_view text, const std::string& where) {
  CISTERN_ASSIGN_OR_RETURN(const nlohmann::json list, ParseDataList(text, "providers", where));
  std::vector<ProviderPreset> presets;
  for (size_t i = 0; i < list.size(); ++i) {
    CISTERN_ASSIGN_OR_RETURN(ProviderPreset preset,
                             ParseProvider(list[i], absl::StrCat(where, ": provider ", i + 1)));
    presets.push_back(std::move(preset));
  }
  return presets;
}

absl::StatusOr<std::vector<ProviderPreset>> LoadProviders(const std::string& path) {
  CISTERN_ASSIGN_OR_RETURN(std::vector<ProviderPreset> presets,
                           ParseProviders(EmbeddedProviders(), "providers.json"));
  if (path.empty()) return presets;
  CISTERN_ASSIGN_OR_RETURN(const std::string text, ReadDataFile(path));
  CISTERN_ASSIGN_OR_RETURN(std::vector<ProviderPreset> more, ParseProviders(text, path));
  MergeEntries(presets, std::move(more));
  return presets;
}

absl::StatusOr<ProviderPreset> FindProvider(const std::vector<ProviderPreset>& presets,
                                            std::string_view name) {
  const int at = IndexOf(presets, name);
  if (at >= 0) return presets[static_cast<size_t>(at)];
  std::vector<std::string> names;
  names.reserve(presets.size());
  for (const ProviderPreset& preset : presets) names.push_back(preset.name);
  return absl::NotFoundError(absl::StrCat("there is no provider '", std::string(name.substr(0, 80)),
                                          "'; known are ", JoinNames(names)));
}

}  // namespace cistern
