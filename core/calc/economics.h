#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/calc/flops.h"
#include "core/calc/model_facts.h"
#include "core/calc/provider_presets.h"

namespace cistern {

inline constexpr double kRequestsPerDayMax = 1e9;
inline constexpr double kSecondsPerDay = 86400;
inline constexpr double kSecondsPerMonth = 365.25 / 12 * kSecondsPerDay;

struct EconomicsRequest {
  uint64_t prefix_tokens = 0;  // Cached by an earlier request, when it is still there.
  uint64_t new_tokens = 0;
  uint64_t output_tokens = 0;
  // Each request also writes its new tokens, as a chat whose next turn builds on them does.
  bool write_new = false;
  double requests_per_day = 0;        // 0: no figures per day.
  std::optional<double> hit_ratio{};  // Share of requests that find the prefix; else from the lifetime.
};

struct DailyCost {
  double hit_ratio = 0;
  double cost = 0;
  double cost_without_cache = 0;
  double storage = 0;  // Part of `cost`: token-hours, or one's own RAM.
};

struct Economics {
  double prefill_flops_saved_ratio = 0;    // Of the whole prompt's FLOPs.
  double attention_flops_saved_ratio = 0;  // Of the prompt's scores and sums alone.
  Flops flops{};                           // Of the whole prompt.
  Flops flops_cached{};                    // Of its new tokens alone.
  bool in_usd = false;                     // Else the unit is the price of one plain input token.
  double cost = 0;                         // Of a request that finds the prefix.
  double cost_without_cache = 0;
  double cost_of_writing = 0;  // Of the request that puts it there.
  double saving_ratio = 0;     // 1 - cost / cost_without_cache.
  double write = 0;            // Multiples of the plain input price, of the prefix.
  double read = 0;
  std::optional<uint64_t> break_even_reuses{};  // Absent: it never pays.
  std::optional<DailyCost> per_day{};
  std::vector<std::string> notes{};  // What was assumed or left out.
};

// Reuses after which a written prefix is cheaper than none: the least n >= 1 with write + n·read < n + 1.
// Absent when a read costs as much as plain input.
std::optional<uint64_t> BreakEvenReuses(double write, double read);

// Share of requests that find an entry alive that each use renews, at random (Poisson) arrival times.
double HitRatioOfLifetime(double requests_per_day, double lifetime_s);

// Seconds that such an entry stays after a use: until the next or its end, on average. The whole lifetime
// without requests per day.
double MeanStaySeconds(double requests_per_day, double lifetime_s);

// InvalidArgument naming the field: no or too many tokens, a preset without what is needed.
absl::StatusOr<Economics> ComputeEconomics(const ModelFacts& model, const ProviderPreset& provider,
                                           const EconomicsRequest& request);

}  // namespace cistern
