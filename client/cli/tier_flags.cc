#include "client/cli/tier_flags.h"

#include <limits>

#include "CLI/CLI.hpp"
#include "client/cli/flag_size.h"
#include "client/cli/shares.h"
#include "core/retention.h"

namespace cistern {

void AddHbm(CLI::App* up, CliOptions& out) {
  AddSize(up, "--hbm", out.up.hbm_bytes, uint64_t{4} << 20, uint64_t{1} << 46, "HBM tier of each node");
  up->add_option("--hbm-device", out.up.hbm_device,
                 "Where it is: the number of a CUDA device, or host for a stand-in of host memory")
      ->type_name("host|N");
}

void AddRetention(CLI::App* app, KeepFlags& out) {
  const auto ttl = [&out](const CLI::results_t& results) {
    const std::optional<int64_t> ms = ParseDurationMs(results.at(0));
    if (!ms || *ms < 1000 || *ms / 1000 > kTtlSecondsMax)
      throw CLI::ValidationError("--ttl",
                                 "'" + results[0] + "' is no time like 5m, 30m, 1h or 24h, up to 180d");
    out.ttl_s = static_cast<uint32_t>(*ms / 1000);
    return true;
  };
  CLI::Option* ttl_option =
      app->add_option("--ttl", ttl, "How long what is stored is wanted (default: as its use earns it)")
          ->type_name("T");
  app->add_flag("--ttl-slides", out.slides, "Count it from the last use, in place of the store")
      ->needs(ttl_option);
  app->add_option("--pin", out.pin, "soft: goes last, may be demoted; hard: stays in RAM until its time ends")
      ->check(CLI::IsMember({"none", "soft", "hard"}))
      ->capture_default_str();
}

void AddTierCommands(CLI::App& app, CliOptions& out) {
  CLI::App* quota = app.add_subcommand("quota", "What tenants may have of every node's RAM, and have");
  quota->require_subcommand(1);
  quota->fallthrough();
  quota->add_subcommand("list", "Limits and use of all tenants");
  CLI::App* set = quota->add_subcommand("set", "Set a tenant's limits on every node, at once");
  set->add_option("TENANT", out.quota.tenant, "TENANT, or TENANT/NAMESPACE")->required();
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  AddSize(set, "--bytes", out.quota.bytes, 0, kAny, "Of each node's RAM; 0 (default): no limit");
  AddSize(set, "--floor", out.quota.floor_bytes, 0, kAny, "Others' blocks take nothing from it below this");
  set->add_option("--when-full", out.quota.when_full, "evict-own: its own blocks make room; reject: refuse")
      ->check(CLI::IsMember({"evict-own", "reject"}))
      ->capture_default_str();
  AddRetention(set, out.quota.retention);
  CLI::App* drain = app.add_subcommand("drain", "Give a node nothing new, before it is stopped");
  drain->add_option("NODE", out.drain.node, "Its id, as in `cistern status`")->required();
  drain->add_flag("--undo", out.drain.undo, "Give it its share again");
  app.add_subcommand("top", "The most used runs of blocks, by temperature, and what each node does");
}

}  // namespace cistern
