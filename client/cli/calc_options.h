#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cistern {

inline constexpr char kCalcProviderDefault[] = "own-gpu";
inline constexpr char kCalcTraceModelDefault[] = "llama-3-70b";

// Where facts and prices come from; both calculators take them.
struct CalcDataOptions {
  std::string models_file;     // Adds to the models built in, or replaces them by name.
  std::string providers_file;  // The same for provider presets.
};

struct CalcEconomicsOptions {
  bool list = false;  // Print models and providers instead.
  std::string model;
  std::string provider = kCalcProviderDefault;
  // Tokens; 0 is refused by name.
  uint64_t prefix = 0;
  uint64_t fresh = 0;
  uint64_t output = 0;
  bool write_new = false;
  double requests_per_day = 0;
  // What takes the preset's place.
  std::optional<double> hit_ratio, read, write, input_price, output_price, storage_price;
  std::optional<uint64_t> min_prefix, lifetime_s;
};

}  // namespace cistern
