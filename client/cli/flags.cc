#include "client/cli/flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/calc_flags.h"
#include "client/cli/flag_size.h"
#include "client/cli/layout_flags.h"
#include "client/cli/output.h"
#include "client/cli/shares.h"
#include "client/cli/tier_flags.h"
#include "core/cluster_map.h"
#include "core/eviction/baselines/baselines.h"
#include "core/eviction_policy.h"
#include "core/host_port.h"
#include "core/version.h"

namespace cistern {
namespace {

void AddFabric(CLI::App* app, CliOptions& out, const std::string& address_help) {
  app->add_option("--fabric", out.fabric.address, address_help)->type_name("HOST:PORT");
  app->add_option("--fabric-transports", out.fabric.transports,
                  "UCX's transports, as in \\rc_verbs; default: all but shared memory and UD");
  app->add_option("--fabric-devices", out.fabric.devices, "UCX's devices, as in mlx5_0:1; default: all");
  app->add_flag("--require-rdma", out.fabric.require_rdma, "Fail without an RDMA device");
}

// Of commands that talk to nodes: which way.
void AddPath(CLI::App* app, CliOptions& out) {
  app->add_option("--transport", out.transport, "Path to the nodes")
      ->check(CLI::IsMember({"auto", "map", "socket", "ucx"}));
  AddFabric(app, out, "This host's address on the fabric; with it nodes that have one are reached there");
}

void AddUpDown(CLI::App& app, CliOptions& out) {
  CLI::App* up =
      app.add_subcommand("up", "Start a local cluster of real processes, or what of it is not running");
  up->add_option("--nodes", out.up.nodes, "Cache nodes (a new cluster: 2)")
      ->check(CLI::Range(1u, kClusterNodesMax));
  up->add_option("--shards", out.up.shards, "Shards of each node (a new cluster: 1)")
      ->check(CLI::Range(1u, kClusterShardsMax));
  AddSize(up, "--ram", out.up.ram_bytes, uint64_t{1} << 20, uint64_t{1} << 44,
          "RAM tier of each node (a new cluster: 1G)");
  AddSize(up, "--nvme", out.up.nvme_bytes, uint64_t{192} << 20, uint64_t{1} << 46,
          "NVMe tier of each node, in its data folder: 192M or more (default: none)");
  AddHbm(up, out);
  CLI::Option* through = up->add_flag_callback(
      "--write-through", [&out] { out.up.nvme_mode = "write-through"; },
      "Parts go to NVMe when they are stored (the default)");
  up->add_flag_callback(
        "--on-demotion", [&out] { out.up.nvme_mode = "on-demotion"; },
        "Parts go to NVMe when RAM has no more room for them")
      ->excludes(through);
  up->add_option("--dir", out.dir, "Folder of the cluster")->capture_default_str();
  up->add_option("--transport", out.up.transport, "Paths that nodes offer")
      ->check(CLI::IsMember({"auto", "map", "socket", "ucx"}));
  AddFabric(
      up, out,
      "Address of the first node's first shard on the fabric, others on the ports behind it; port 0: any");
  up->add_option(
      "--policy", out.up.policy,
      "Eviction policy of the nodes: " + absl::StrJoin(kNodePolicies, ", ") + " (a new cluster: slru)");
  up->add_flag("--detach", out.up.detach, "Print what runs and return; else stay and end it on Ctrl-C");
  up->add_option("--deadline-s", out.up.deadline_s, "Seconds for all nodes to be active and answering")
      ->check(CLI::Range(1u, 3600u))
      ->capture_default_str();
  CLI::App* down = app.add_subcommand("down", "End the local cluster; what was in RAM alone is gone");
  down->add_option("--dir", out.dir, "Folder of the cluster")->capture_default_str();
}

void AddReplay(CLI::App& app, CliOptions& out) {
  CLI::App* replay =
      app.add_subcommand("replay", "Drive the cluster with a request trace and check every byte");
  replay->add_option("FILE", out.replay.file, "Trace: JSON lines, plain or .zst")->required();
  CLI::Option* layout =
      replay->add_option("--layout", out.replay.layout,
                         "Layout of the blocks: plain (default), or a model's as in docs/layouts");
  replay->add_option("--retention", out.replay.retention, "Tails kept: ends, junctions (default) or every:N")
      ->needs(layout);
  replay
      ->add_option("--scale", out.replay.scale,
                   "Divide the bytes of every part of the layout, for small machines")
      ->check(CLI::Range(1u, kReplayScaleMax))
      ->needs(layout);
  replay
      ->add_flag("--dry-run", out.replay.dry_run,
                 "Only what each retention would hit and cost; needs no cluster")
      ->needs(layout);
  replay->add_option("--block-tokens", out.replay.block_tokens, "Tokens a block (default: as the trace says)")
      ->check(CLI::Range(1u, 4096u));
  AddSize(replay, "--bytes-per-block", out.replay.bytes_per_block, kBlockBytesMin, kBlockBytesMax,
          "Bytes of one block, 4K to 4M (default 64K)");
  AddRequests(replay, out.replay.requests);
  const auto speed = [&out](const CLI::results_t& results) {
    if (results.at(0) == "max") return out.replay.speed = 0, true;
    char* end = nullptr;
    const double factor = std::strtod(results[0].c_str(), &end);
    if (*end != '\0' || !(factor > 0) || factor > 1e9) {
      throw CLI::ValidationError("--speed", "'" + results[0] + "' is neither a factor above 0 nor max");
    }
    return out.replay.speed = factor, true;
  };
  replay->add_option("--speed", speed, "Factor on the trace's clock, or max (default)")->type_name("X|max");
  AddRetention(replay, out.replay.keep);
  replay->add_flag("--verify", out.replay.verify, "Compare every loaded byte with what it must be");
  AddPath(replay, out);
}

void AddBench(CLI::App& app, CliOptions& out) {
  CLI::App* bench = app.add_subcommand("bench", "Measure one operation, with its physical limit beside it");
  bench->add_option("OP", out.bench.op, "read, write, lookup, hash, formats or disk")
      ->required()
      ->check(CLI::IsMember({"read", "write", "lookup", "hash", "formats", "disk"}));
  AddSize(bench, "--size", out.bench.size_bytes, 1, kBlockBytesMax, "Bytes of a part (default 64K)");
  bench
      ->add_option("--batch", out.bench.batch,
                   "Parts an op (default 16); blocks of the prefix for lookup and hash (4096)")
      ->check(CLI::Range(1u, kBenchBatchMax));
  bench->add_option("--block-tokens", out.bench.block_tokens, "Tokens a block")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  AddPath(bench, out);
  bench->add_option("--seconds", out.bench.seconds, "Measured time in all")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  bench->add_flag("--limit", out.bench.limit,
                  "Measure memcpy, a raw socket, SHA-256 or fio of the same shape in the same run");
  AddSize(bench, "--data", out.bench.data_bytes, 1, uint64_t{1} << 40,
          "read: bytes of all prefixes together (default 1G)");
  AddSize(
      bench, "--stores", out.bench.stores_bytes, 1, uint64_t{1} << 40,
      "read: the same client stores so many new bytes a second meanwhile, in parts of 1 MiB (default: none)");
  AddSize(bench, "--rate", out.bench.rate_bytes, 1, uint64_t{1} << 40,
          "read, write: at most so many bytes a second (default: as fast as it goes)");
  bench->add_option("--rw", out.bench.rw, "disk: what is measured")
      ->check(CLI::IsMember({"write", "randread"}))
      ->capture_default_str();
  bench->add_option("--dir", out.bench.dir, "disk: a folder on the disk to measure")->capture_default_str();
  bench->add_flag("--no-spin", out.bench.no_spin, "Sleep while waiting instead of spinning");
}

// Splits "1%,5%" or "lru,fifo" and hands each piece to `take`, which says whether it can be read.
CLI::Option* AddList(CLI::App* app, const std::string& name, const std::string& help,
                     const std::string& example,
                     std::function<bool(std::string_view piece, bool first)> take) {
  const auto split = [name, example, take](const CLI::results_t& results) {
    bool first = true;
    for (const std::string& result : results) {
      for (size_t at = 0; at <= result.size(); first = false) {
        const size_t end = std::min(result.find(',', at), result.size());
        const std::string piece = result.substr(at, end - at);
        if (!take(piece, first))
          throw CLI::ValidationError(name, absl::StrCat("'", piece, "' is no ", example));
        at = end + 1;
      }
    }
    return true;
  };
  return app->add_option(name, split, help);
}

void AddSim(CLI::App& app, CliOptions& out) {
  CLI::App* all = app.add_subcommand("sim", "Run a trace through the nodes' own code, without nodes");
  all->require_subcommand(1);
  all->fallthrough();
  CLI::App* sim = all->add_subcommand("eviction", "Hit ratios by policy and size");
  sim->add_option("FILE", out.sim.file, "Trace: JSON lines, plain or .zst")->required();
  AddList(sim, "--policy", "Policies (default: all): " + absl::StrJoin(SimulatedPolicies(), ", "),
          "policy; write for example lru,slru",
          [&out](std::string_view piece, bool first) {
            if (first) out.sim.policies.clear();
            out.sim.policies.emplace_back(piece);
            return !piece.empty();
          })
      ->type_name("P,...");
  AddList(sim, "--size", "Shares of the trace's unique blocks (default 1%,2%,5%,10%,20%,50%)",
          "share above 0 and up to 100%; write for example 1%,5% or 0.05",
          [&out](std::string_view piece, bool first) {
            if (first) out.sim.sizes.clear();
            const std::optional<double> share = ParseShare(piece);
            if (share) out.sim.sizes.push_back(*share);
            return share.has_value();
          })
      ->type_name("S%,...");
  AddList(sim, "--ttl", "Sliding times to live, of a memory without end", "time; write for example 5m,1h",
          [&out](std::string_view piece, bool first) {
            if (first) out.sim.ttls_ms.clear();
            const std::optional<int64_t> ttl = ParseDurationMs(piece);
            if (ttl) out.sim.ttls_ms.push_back(*ttl);
            return ttl.has_value();
          })
      ->type_name("T,...");
  sim->add_option("--flow", out.sim.flow,
                  "Order of calls: as comparisons in print have it, or as nodes make them")
      ->check(CLI::IsMember({"plain", "node"}))
      ->capture_default_str();
  sim->add_option("--nodes", out.sim.nodes,
                  "Split the pool over so many nodes, as the cluster places runs (policies of nodes only)")
      ->check(CLI::Range(1u, static_cast<uint32_t>(kNodesMax)))
      ->capture_default_str();
  sim->add_option("--plot", out.sim.plot, "Draw hit ratio against size into this SVG file")
      ->type_name("FILE");
}

void AddFsck(CLI::App& app, CliOptions& out) {
  CLI::App* fsck = app.add_subcommand("fsck", "Check the disk log of a node");
  fsck->add_option("DIR", out.fsck.data_dir, "The node's data folder: data_dir of 'cistern up'")->required();
}

void AddLooks(CLI::App& app, CliOptions& out) {
  app.add_subcommand("status", "Router, nodes, tiers and hits, live");
  CLI::App* peers = app.add_subcommand("peers", "Which path each connection uses, and why");
  AddPath(peers, out);
  peers->add_flag("--topology", out.topology,
                  "This machine's NICs and GPUs, and which NIC lies near what; asks no cluster");
  CLI::App* lookup = app.add_subcommand("lookup", "How much of a prompt is cached, and where");
  lookup->add_option("--layout", out.lookup.layout, "Layout of the blocks: plain (default), or a model's");
  lookup->add_option("--tokens", out.lookup.tokens_file, "File of token ids; - is standard input")
      ->required();
  lookup->add_option("--block-tokens", out.lookup.block_tokens, "Tokens a block")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  AddSize(lookup, "--bytes-per-block", out.lookup.bytes_per_block, 1, kBlockBytesMax,
          "Bytes of one block (default 64K)");
  AddPath(lookup, out);
}

constexpr char kCommandFooter[] =
    "As every command it takes --json and --router HOST:PORT; see 'cistern --help'.";

void AddAll(CLI::App& app, CliOptions& out) {
  app.require_subcommand(1);
  app.fallthrough();  // `cistern status --json` as well as `cistern --json status`.
  app.set_version_flag("--version", absl::StrCat("cistern ", kVersion));
  app.add_flag("--json", out.json, "Print exactly one JSON object");
  app.add_option("--router", out.router, "HOST:PORT of the router; else CISTERN_ROUTER")
      ->capture_default_str();
  AddUpDown(app, out);
  AddLooks(app, out);
  AddReplay(app, out);
  AddBench(app, out);
  AddCalc(app, out);
  AddLayout(app, out);
  AddSim(app, out);
  AddFsck(app, out);
  AddTierCommands(app, out);
  for (CLI::App* command : app.get_subcommands({})) {
    command->footer(kCommandFooter);
    for (CLI::App* nested : command->get_subcommands({})) nested->footer(kCommandFooter);
  }
  app.footer("Exit codes: 0 done, 1 falls short, 2 user or connection error (one line on stderr).");
}

void FillFromEnvironment(CliOptions& out) {
  if (const char* router = std::getenv("CISTERN_ROUTER"); router != nullptr && *router != '\0')
    out.router = router;
  std::error_code ignored;
  out.bench.dir = std::filesystem::temp_directory_path(ignored).string();
  const char* home = std::getenv("HOME");
  out.dir = home != nullptr && *home != '\0' ? std::string(home) + "/.cistern" : "cistern-data";
}

// The words of a command line that are no flags and no flag's values, as far as they name commands: "calc
// trace". Ends before the first that names none; `unknown` is that one where a command was due: there CLI11
// would speak of an unexpected argument.
std::string CommandPath(const CLI::App& app, int argc, const char* const* argv, std::string& unknown) {
  const CLI::App* at = &app;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--router") {
      ++i;
      continue;
    }
    if (word.starts_with("-")) continue;
    const auto commands = at->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty()) break;
    const auto named = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* one) { return one->get_name() == word; });
    if (named == commands.end()) {
      unknown = word;
      break;
    }
    at = *named;
    path += (path.empty() ? "" : " ") + at->get_name();
  }
  return path;
}

bool Names(int argc, const char* const* argv, std::string_view flag) {
  return std::any_of(argv + 1, argv + argc, [&](std::string_view word) {
    return word == flag || (word.starts_with(flag) && word.substr(flag.size()).starts_with("="));
  });
}

// A model's layout says itself what a block is, and its replay takes no clock and no times to live: a flag
// that would do nothing beside it is refused. Empty: there is none.
std::string DoesNothingBesideLayout(const CliOptions& out, int argc, const char* const* argv) {
  const std::string& layout = out.command == "replay" ? out.replay.layout : out.lookup.layout;
  if (layout.empty() || layout == "plain") return "";
  for (const char* flag : {"--bytes-per-block", "--block-tokens", "--speed", "--ttl", "--pin"}) {
    const bool default_speed = flag == std::string_view("--speed") && out.replay.speed == 0;
    if (default_speed || !Names(argc, argv, flag)) continue;
    return absl::StrCat(flag, " does nothing with --layout ", layout, ", only with plain blocks; leave ",
                        flag, " or --layout away");
  }
  return "";
}

}  // namespace

std::optional<int> ParseFlags(int argc, const char* const* argv, CliOptions& out) {
  FillFromEnvironment(out);
  CLI::App app("cistern: a distributed KV-cache tier for LLM inference", "cistern");
  AddAll(app, out);
  const bool json = argc > 1 && Names(argc, argv, "--json");
  if (argc <= 1) return Fail(json, "no command given; see 'cistern --help'");
  std::string unknown;
  const std::string path = CommandPath(app, argc, argv, unknown);
  const std::string in_path = path.empty() ? "" : " " + path;
  if (!unknown.empty()) {
    return Fail(json, "there is no command '" + in_path.substr(in_path.empty() ? 0 : 1) +
                          (path.empty() ? "" : " ") + unknown + "'; 'cistern" + in_path +
                          " --help' lists those there are");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int code = app.exit(help, text, text);
    Print(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    return Fail(json, std::string(error.what()) + "; see 'cistern" + in_path + " --help'");
  }
  out.command = path;
  out.up.router_given = Names(argc, argv, "--router");
  const PortZero zero =
      path == "up" ? PortZero::kAnyFree : PortZero::kRefused;  // Only `up` finds a free one.
  if (const absl::Status router = ParseHostPort(out.router, zero).status(); !router.ok())
    return Fail(json, (out.up.router_given ? "--router " : "the variable CISTERN_ROUTER ") +
                          std::string(router.message()));
  if (const std::string why = DoesNothingBesideLayout(out, argc, argv); !why.empty()) return Fail(json, why);
  return std::nullopt;
}

std::vector<CommandFlags> ListFlags() {
  CliOptions scratch;
  CLI::App app;
  AddAll(app, scratch);
  std::vector<CommandFlags> all;
  const auto list = [&all](const CLI::App& command, const std::string& name) {
    CommandFlags one{name, {}};
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& long_name : option->get_lnames()) one.flags.push_back("--" + long_name);
    }
    std::sort(one.flags.begin(), one.flags.end());
    all.push_back(std::move(one));
  };
  list(app, "");
  for (const CLI::App* command : app.get_subcommands({})) {
    list(*command, command->get_name());
    for (const CLI::App* nested : command->get_subcommands({}))
      list(*nested, command->get_name() + " " + nested->get_name());
  }
  return all;
}

}  // namespace cistern
