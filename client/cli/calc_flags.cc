#include "client/cli/calc_flags.h"

#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/flag_size.h"
#include "client/cli/layout_flags.h"
#include "core/calc/economics.h"
#include "core/calc/trace_profile.h"

namespace cistern {
namespace {

void AddData(CLI::App* command, CalcDataOptions& data) {
  command->add_option("--models", data.models_file, "File of models that adds to those built in")
      ->type_name("FILE");
  command->add_option("--providers", data.providers_file, "File of provider presets, likewise")
      ->type_name("FILE");
}

void AddTokens(CLI::App* command, const char* name, uint64_t& value, const char* help) {
  command->add_option(name, value, help)->check(CLI::Range(uint64_t{1}, kCalcTokensMax))->type_name("TOKENS");
}

void AddEconomics(CLI::App* calc, CliOptions& out) {
  CLI::App* command = calc->add_subcommand("economics", "What a cached prefix saves in FLOPs and money");
  CalcEconomicsOptions& o = out.calc_economics;
  AddTokens(command, "--prefix", o.prefix, "Prompt tokens that an earlier request left in the cache");
  AddTokens(command, "--new", o.fresh, "Prompt tokens behind them");
  AddTokens(command, "--output", o.output, "Tokens of the answer");
  command->add_option("--model", o.model, "Model whose FLOPs are counted");
  command->add_option("--provider", o.provider, "Preset of cache rules and prices")->capture_default_str();
  command->add_flag("--write-new", o.write_new, "Each request writes its new tokens to the cache too");
  command->add_option("--requests-per-day", o.requests_per_day, "Also print figures per day")
      ->check(CLI::Range(1e-3, kRequestsPerDayMax));
  command
      ->add_option("--hit-ratio", o.hit_ratio,
                   "Share of requests that find the prefix (default: by lifetime)")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--read", o.read, "Price of a cached token, in plain input prices")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--write", o.write, "Price of writing one, likewise")->check(CLI::Range(0.0, 100.0));
  command->add_option("--min-prefix", o.min_prefix, "Shortest prefix that is cached")
      ->check(CLI::Range(uint64_t{0}, kCalcTokensMax));
  command->add_option("--lifetime-s", o.lifetime_s, "Seconds an entry lives after its last use")
      ->check(CLI::Range(uint64_t{1}, kLifetimeSecondsMax));
  command->add_option("--input-price", o.input_price, "USD per million plain input tokens")
      ->check(CLI::Range(1e-9, kPriceMax));
  command->add_option("--output-price", o.output_price, "USD per million output tokens")
      ->check(CLI::Range(0.0, kPriceMax));
  command->add_option("--storage-price", o.storage_price, "USD per million cached tokens and hour")
      ->check(CLI::Range(0.0, kPriceMax));
  command->add_flag("--list", o.list, "Print the known models and providers");
  AddData(command, out.calc_data);
}

void AddTrace(CLI::App* calc, CliOptions& out) {
  CLI::App* command =
      calc->add_subcommand("trace", "What a request log says about caching: hits, sizes, dollars");
  CalcTraceOptions& o = out.calc_trace;
  command->add_option("FILE", o.file, "Trace: JSON lines, plain or .zst")->required();
  AddRequests(command, o.requests);
  command->add_option("--model", o.model, "Model whose bytes and FLOPs a token has")->capture_default_str();
  command->add_option("--provider", o.provider, "Preset with a gpu: prices of RAM, NVMe and GPU time")
      ->capture_default_str();
  command->add_option("--bytes-per-token", o.bytes_per_token, "Bytes of a token's KV (default: the model's)")
      ->check(CLI::Range(1e-3, 1e9));
  command->add_option("--input-price", o.input_price, "USD per million prefilled tokens (default: counted)")
      ->check(CLI::Range(0.0, kPriceMax));
  command->add_option("--ttl-s", o.ttls_s, "Lifetimes of the TTL curve, seconds, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1e-3, 1e9))
      ->expected(1, static_cast<int>(kProfileTtlsMax))
      ->allow_extra_args(false);
  command->add_option("--size", o.sizes, "Sizes of the curve, percent of the distinct blocks, with commas")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->expected(1, static_cast<int>(kCalcTraceSizesMax))
      ->allow_extra_args(false);
  command->add_option("--hot-s", o.hot_s, "Longest mean gap between uses of a hot block, seconds")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command->add_option("--warm-s", o.warm_s, "The same of a warm block")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  constexpr uint64_t kTierBytesMax = uint64_t{1} << 60;
  AddSize(command, "--ram", o.ram_bytes, 1, kTierBytesMax, "RAM of a cache to look at");
  AddSize(command, "--nvme", o.nvme_bytes, 1, kTierBytesMax, "Its NVMe, which holds what RAM holds too");
  AddData(command, out.calc_data);
}

}  // namespace

void AddCalc(CLI::App& app, CliOptions& out) {
  CLI::App* calc = app.add_subcommand("calc", "Calculators that need no cluster: memory, costs and savings");
  calc->require_subcommand(1);
  calc->fallthrough();
  AddEconomics(calc, out);
  AddTrace(calc, out);
  AddCalcMemory(calc, out);
}

}  // namespace cistern
