#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern {

inline constexpr uint64_t kLifetimeSecondsMax = uint64_t{10} * 366 * 86400;
inline constexpr double kPriceMax = 1e6;  // USD per million tokens, an hour, a GB-month …

// Prices of one's own hardware. All are examples until replaced.
struct GpuPrices {
  double usd_per_hour = 0;         // One GPU with its share of the machine.
  double peak_tflops = 0;          // 10^12 dense operations a second.
  double prefill_utilisation = 1;  // Share of the peak that prefill reaches.
  double decode_utilisation = 1;   // Share that decoding reaches.
  double watts = 0;                // Of one GPU at work; 0 when the hour's price has it.
  double usd_per_kwh = 0;
  double load_gb_per_s = 1;  // 10^9 bytes of cached KV a second into one GPU, which waits meanwhile.
  double ram_usd_per_gb_month = 0;
  double nvme_usd_per_gb_month = 0;

  double UsdPerSecond() const { return (usd_per_hour + watts / 1000 * usd_per_kwh) / 3600; }
  double UsdPerPrefillFlop() const { return UsdPerSecond() / (peak_tflops * 1e12 * prefill_utilisation); }
  double UsdPerDecodeFlop() const { return UsdPerSecond() / (peak_tflops * 1e12 * decode_utilisation); }
};

// How one provider caches prompts and what it takes for it. Absent: not published, or not promised.
struct ProviderPreset {
  std::string name{};
  std::vector<std::string> aliases{};
  std::string title{};
  double write = 1;                      // Multiple of the plain input price for a token that is written.
  std::optional<double> read{};          // The same for a token that is read.
  uint64_t min_prefix_tokens = 0;        // A shorter prefix is silently not cached.
  std::optional<uint64_t> lifetime_s{};  // Since the last use.
  bool has_storage = false;              // Billed by the token-hour.
  std::optional<double> storage_usd_per_mtoken_hour{};
  std::optional<double> input_usd_per_mtoken{};
  std::optional<double> output_usd_per_mtoken{};
  std::string price_of{};          // The model whose prices these are.
  std::optional<GpuPrices> gpu{};  // Set: costs are counted from FLOPs, bytes and seconds instead.
  std::string source{};
  std::string date{};  // When it was read.
  std::string note{};
};

// The providers of one data file; `where` names it in messages. InvalidArgument naming entry and field.
absl::StatusOr<std::vector<ProviderPreset>> ParseProviders(std::string_view text, const std::string& where);
// The embedded presets; those of the file at `path`, if it is not empty, take the place of their namesakes.
absl::StatusOr<std::vector<ProviderPreset>> LoadProviders(const std::string& path);
// NotFound listing the known names.
absl::StatusOr<ProviderPreset> FindProvider(const std::vector<ProviderPreset>& presets,
                                            std::string_view name);

}  // namespace cistern
