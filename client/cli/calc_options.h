#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

inline constexpr char kCalcProviderDefault[] = "own-gpu";
inline constexpr size_t kCalcTraceSizesMax = 256;  // Rows of one curve.
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

struct CalcTraceOptions {
  std::string file;                             // Trace, plain or .zst.
  uint64_t requests = 0;                        // Only the first so many; 0: all.
  std::string model = kCalcTraceModelDefault;   // Bytes and FLOPs of a token.
  std::string provider = kCalcProviderDefault;  // Prices of RAM, NVMe and a GPU's second.
  double bytes_per_token = 0;                   // 0: the model's.
  std::optional<double> input_price;            // USD per million prefilled tokens; else counted.
  std::vector<double> ttls_s;                   // Empty: 1, 5, 10, 30, 60 minutes and a day.
  std::vector<double> sizes;                    // Percent of the distinct blocks; empty: seven from 1 to 100.
  double hot_s = 60;
  double warm_s = 600;
  uint64_t ram_bytes = 0;  // A cache to look at beside the curve.
  uint64_t nvme_bytes = 0;
};

}  // namespace cistern
