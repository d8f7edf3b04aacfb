// Data files of the calculators that users write: refused with entry and field, or sound numbers.
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "core/calc/economics.h"
#include "tests/fuzz/fuzz_target.h"

namespace cistern {
namespace {

constexpr const char* kModels =
    "{\"date\": \"d\", \"models\": [{\"name\": \"m\", \"linear_params\": 7e9, \"kv_bytes_per_token\": 4, "
    "\"source\": \"s\", "
    "\"attention\": [{\"family\": \"window\", \"layers\": 3, \"heads\": 2, \"qk_dim\": 8, \"v_dim\": 8, "
    "\"cap\": 128}]}]}";
constexpr const char* kProviders =
    "{\"providers\": [{\"name\": \"p\", \"write\": 1.25, \"read\": 0.1, \"min_prefix_tokens\": 9, "
    "\"lifetime_s\": 300, "
    "\"input_usd_per_mtoken\": 3, \"source\": \"s\", \"date\": \"d\"}]}";

}  // namespace

void FuzzSeeds(const std::function<void(const std::string&, const std::string&)>& add) {
  add("models", kModels);
  add("providers", kProviders);
}

}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const std::vector<ModelFacts> known = *LoadModels("");
  static const std::vector<ProviderPreset> presets = *LoadProviders("");
  constexpr EconomicsRequest kRequest{
      .prefix_tokens = 100, .new_tokens = 20, .output_tokens = 3, .requests_per_day = 10};
  const auto models = ParseModels(text, "f");
  FUZZ_REQUIRE(models.ok() || absl::StartsWith(models.status().message(), "f: "));
  if (models.ok()) {
    for (const ModelFacts& model : *models) {
      const Flops flops = CountFlops(model, 0, 1000);
      FUZZ_REQUIRE(std::isfinite(flops.total()) && flops.linear > 0 && flops.attention >= 0);
    }
  }
  const auto providers = ParseProviders(text, "f");
  FUZZ_REQUIRE(providers.ok() || absl::StartsWith(providers.status().message(), "f: "));
  if (providers.ok()) {
    for (const ProviderPreset& provider : *providers) {
      const auto economics = ComputeEconomics(known[0], provider, kRequest);
      FUZZ_REQUIRE(!economics.ok() || std::isfinite(economics->cost));
    }
  }
  return 0;
}
