#include "core/calc/economics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace cistern {
namespace {

constexpr uint64_t kReusesMax = 1'000'000'000;  // Beyond that "never" is the better word.

absl::Status CheckTokens(const char* field, uint64_t tokens) {
  if (tokens >= 1 && tokens <= kCalcTokensMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", tokens, "; give 1 to ", kCalcTokensMax, " tokens"));
}

absl::Status Check(const EconomicsRequest& request) {
  CISTERN_RETURN_IF_ERROR(CheckTokens("prefix", request.prefix_tokens));
  CISTERN_RETURN_IF_ERROR(CheckTokens("new", request.new_tokens));
  CISTERN_RETURN_IF_ERROR(CheckTokens("output", request.output_tokens));
  CISTERN_RETURN_IF_ERROR(CheckTokens("prefix and new together", request.prefix_tokens + request.new_tokens));
  if (!(request.requests_per_day >= 0 && request.requests_per_day <= kRequestsPerDayMax))
    return absl::InvalidArgumentError(absl::StrCat("requests per day is not from 0 to ", kRequestsPerDayMax));
  if (request.hit_ratio && !(*request.hit_ratio >= 0 && *request.hit_ratio <= 1))
    return absl::InvalidArgumentError("hit ratio is not from 0 to 1");
  return absl::OkStatus();
}

// What a provider takes, or what one's own hardware costs, in one unit.
struct Prices {
  double prefix_plain = 0;  // The prefix without a cache.
  double fresh = 0;         // The new tokens.
  double output = 0;
  double write = 1, read = 0;      // Multiples of prefix_plain.
  double storage_per_day = 0;      // For the prefix, whatever the number of requests.
  double storage_per_request = 0;  // Part of both multiples already.
};

absl::StatusOr<Prices> PricesOfProvider(const ProviderPreset& provider, const EconomicsRequest& request,
                                        Economics& out) {
  if (!provider.read)
    return absl::InvalidArgumentError(absl::StrCat("provider ", provider.name,
                                                   " publishes no price for cached reads (", provider.note,
                                                   "): give it as a multiple of the input price"));
  Prices prices;
  out.in_usd = provider.input_usd_per_mtoken.has_value();
  const double token = out.in_usd ? *provider.input_usd_per_mtoken / 1e6 : 1;
  prices.write = provider.write;
  prices.read = *provider.read;
  prices.prefix_plain = token * static_cast<double>(request.prefix_tokens);
  prices.fresh = token * static_cast<double>(request.new_tokens);
  if (!out.in_usd)
    out.notes.push_back("no price of input tokens: costs are in plain input tokens, without the output");
  if (out.in_usd && provider.output_usd_per_mtoken) {
    prices.output = *provider.output_usd_per_mtoken / 1e6 * static_cast<double>(request.output_tokens);
  } else if (out.in_usd) {
    out.notes.push_back("no price of output tokens: they are left out");
  }
  if (provider.storage_usd_per_mtoken_hour && !out.in_usd) {
    out.notes.push_back("storage is left out: its price is in USD, that of input tokens is not known");
  } else if (provider.storage_usd_per_mtoken_hour) {
    prices.storage_per_day =
        *provider.storage_usd_per_mtoken_hour / 1e6 * static_cast<double>(request.prefix_tokens) * 24;
  } else if (provider.has_storage) {
    out.notes.push_back("storage is billed by the token-hour and left out: its price is not known");
  }
  if (request.prefix_tokens < provider.min_prefix_tokens) {
    out.notes.push_back(absl::StrCat("the prefix is below the provider's minimum of ",
                                     provider.min_prefix_tokens, " tokens: it is silently not cached"));
    prices.write = prices.read = 1;
  }
  return prices;
}

Prices PricesOfGpu(const ModelFacts& model, const ProviderPreset& provider, const EconomicsRequest& request,
                   Economics& out) {
  const GpuPrices& gpu = *provider.gpu;
  const uint64_t prompt = request.prefix_tokens + request.new_tokens;
  const double bytes = model.kv_bytes_per_token * static_cast<double>(request.prefix_tokens) +
                       static_cast<double>(model.tail_bytes);
  Prices prices;
  out.in_usd = true;
  prices.prefix_plain = CountFlops(model, 0, request.prefix_tokens).total() * gpu.UsdPerPrefillFlop();
  prices.fresh = out.flops_cached.total() * gpu.UsdPerPrefillFlop();
  prices.output = CountFlops(model, prompt, prompt + request.output_tokens).total() * gpu.UsdPerDecodeFlop();
  const double load = bytes / (gpu.load_gb_per_s * 1e9) * gpu.UsdPerSecond();
  // Every request, whether it wrote or read, leaves the prefix in RAM until the next one or its end.
  const double stay_s =
      MeanStaySeconds(request.requests_per_day, static_cast<double>(provider.lifetime_s.value_or(0)));
  const double stay = bytes / 1e9 * gpu.ram_usd_per_gb_month / kSecondsPerMonth * stay_s;
  prices.write = 1 + stay / prices.prefix_plain;
  prices.read = (load + stay) / prices.prefix_plain;
  prices.storage_per_request = stay;
  return prices;
}

DailyCost CostPerDay(const EconomicsRequest& request, const ProviderPreset& provider, const Prices& prices,
                     Economics& out) {
  DailyCost day;
  const double n = request.requests_per_day;
  if (request.hit_ratio) {
    day.hit_ratio = *request.hit_ratio;
  } else if (provider.lifetime_s) {
    day.hit_ratio = HitRatioOfLifetime(n, static_cast<double>(*provider.lifetime_s));
  } else {
    day.hit_ratio = std::max(0.0, (n - 1) / n);
    out.notes.push_back("the provider promises no lifetime: every request but the first is taken as a hit");
  }
  day.storage = prices.storage_per_day + n * prices.storage_per_request;
  day.cost =
      n * (day.hit_ratio * out.cost + (1 - day.hit_ratio) * out.cost_of_writing) + prices.storage_per_day;
  day.cost_without_cache = n * out.cost_without_cache;
  return day;
}

}  // namespace

std::optional<uint64_t> BreakEvenReuses(double write, double read) {
  if (!(read < 1)) return std::nullopt;
  const double reuses = (write - 1) / (1 - read);  // It pays for every n above this.
  if (!(reuses < static_cast<double>(kReusesMax))) return std::nullopt;
  return static_cast<uint64_t>(std::max(1.0, std::floor(reuses) + 1));
}

double HitRatioOfLifetime(double requests_per_day, double lifetime_s) {
  return -std::expm1(-requests_per_day / kSecondsPerDay * lifetime_s);
}

double MeanStaySeconds(double requests_per_day, double lifetime_s) {
  if (!(requests_per_day > 0)) return lifetime_s;
  return HitRatioOfLifetime(requests_per_day, lifetime_s) / requests_per_day * kSecondsPerDay;
}

absl::StatusOr<Economics> ComputeEconomics(const ModelFacts& model, const ProviderPreset& provider,
                                           const EconomicsRequest& request) {
  CISTERN_RETURN_IF_ERROR(Check(request));
  const uint64_t prompt = request.prefix_tokens + request.new_tokens;
  Economics out;
  out.flops = CountFlops(model, 0, prompt);
  out.flops_cached = CountFlops(model, request.prefix_tokens, prompt);
  out.prefill_flops_saved_ratio = 1 - out.flops_cached.total() / out.flops.total();
  out.attention_flops_saved_ratio = 1 - out.flops_cached.attention / out.flops.attention;
  Prices prices;
  if (provider.gpu) {
    prices = PricesOfGpu(model, provider, request, out);
  } else {
    CISTERN_ASSIGN_OR_RETURN(prices, PricesOfProvider(provider, request, out));
  }
  const double fresh = prices.fresh * (request.write_new ? prices.write : 1);
  out.write = prices.write;
  out.read = prices.read;
  out.cost = prices.prefix_plain * prices.read + fresh + prices.output;
  out.cost_of_writing = prices.prefix_plain * prices.write + fresh + prices.output;
  out.cost_without_cache = prices.prefix_plain + prices.fresh + prices.output;
  out.saving_ratio = 1 - out.cost / out.cost_without_cache;
  out.break_even_reuses = BreakEvenReuses(prices.write, prices.read);
  if (request.requests_per_day > 0) out.per_day = CostPerDay(request, provider, prices, out);
  if (!model.note.empty()) out.notes.push_back(model.note);
  return out;
}

}  // namespace cistern
