// cistern-sim: simulated clusters. One seed with a readable history, to look into a run that failed; or many,
// the first failure of which is made smaller.
//   cistern-sim [--seed N] [--steps N] [--nodes N] [--clients N] [--faults KIND,...|all|none] [--quiet]
//   cistern-sim --seeds N [--first N] [--jobs N] [--faults ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "tests/sim/sim_faults.h"
#include "tests/sim/sim_shrink.h"

namespace cistern {
namespace {

using Flags = std::map<std::string, std::string>;

uint64_t Number(const Flags& flags, const char* name, uint64_t fallback) {
  const auto found = flags.find(name);
  return found == flags.end() ? fallback : std::strtoull(found->second.c_str(), nullptr, 10);
}

// What the flags say on top of what the seed draws.
SimOptions OptionsOf(uint64_t seed, const Flags& flags) {
  SimOptions options = DrawOptions(seed);
  options.steps = static_cast<uint32_t>(Number(flags, "--steps", options.steps));
  options.nodes = static_cast<uint32_t>(Number(flags, "--nodes", options.nodes));
  options.clients = static_cast<uint32_t>(Number(flags, "--clients", options.clients));
  if (const auto faults = flags.find("--faults"); faults != flags.end())
    options.faults = *ParseFaults(faults->second);
  return options;
}

void PrintMarks(const std::map<std::string, uint64_t>& marks) {
  for (const auto& [name, times] : marks)
    std::printf("mark %-32s %llu\n", name.c_str(), static_cast<unsigned long long>(times));
}

int RunOne(const Flags& flags) {
  const SimOptions options = OptionsOf(Number(flags, "--seed", 1), flags);
  std::function<void(const std::string&)> print;
  if (flags.count("--quiet") == 0) print = [](const std::string& line) { std::puts(line.c_str()); };
  const SimReport report = SimCluster(options, print).Run();
  PrintMarks(report.marks);
  std::printf("seed %llu: %llu events, %llu turns, %.3f s simulated, digest %016llx\n",
              static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(report.events),
              static_cast<unsigned long long>(report.turns), static_cast<double>(report.simulated) / 1e9,
              static_cast<unsigned long long>(report.digest));
  if (report.failure.empty()) return 0;
  std::printf("FAILED: %s\n", report.failure.c_str());
  return 1;
}

int RunMany(const Flags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  const auto jobs = static_cast<uint32_t>(Number(flags, "--jobs", 1));
  const SeedsReport report = RunSeeds(Number(flags, "--first", 1), Number(flags, "--seeds", 1), jobs,
                                      [&](uint64_t seed) { return OptionsOf(seed, flags); });
  const double minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 60;
  PrintMarks(report.marks);
  std::printf("%llu runs of %llu calls and %llu events in %.2f min with %u jobs: %.2f M events a minute\n",
              static_cast<unsigned long long>(report.runs), static_cast<unsigned long long>(report.calls),
              static_cast<unsigned long long>(report.events), minutes, jobs,
              static_cast<double>(report.events) / minutes / 1e6);
  if (report.failed_seed == 0) return 0;
  std::printf("FAILED: seed %llu: %s\n", static_cast<unsigned long long>(report.failed_seed),
              report.failure.c_str());
  const Shrunk shrunk = Shrink(OptionsOf(report.failed_seed, flags), report.failure);
  std::printf("smaller after %u runs: cistern-sim %s\n  %s\n", shrunk.runs, FlagsOf(shrunk.options).c_str(),
              shrunk.failure.c_str());
  return 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  bool good = true;
  for (int i = 1; i < argc && good; ++i) {
    const std::string name = argv[i];
    if (name == "--quiet") {
      flags[name];
      continue;
    }
    static constexpr const char* kNames[] = {"--seed",  "--seeds", "--first",   "--jobs",
                                             "--steps", "--nodes", "--clients", "--faults"};
    good = i + 1 < argc && std::any_of(std::begin(kNames), std::end(kNames),
                                       [&](const char* known) { return name == known; });
    if (good) flags[name] = argv[++i];
  }
  if (const auto faults = flags.find("--faults"); faults != flags.end())
    good = good && ParseFaults(faults->second).has_value();
  if (!good) {
    std::fprintf(stderr,
                 "usage: cistern-sim [--seed N | --seeds N [--first N] [--jobs N]] [--steps N] [--nodes N] "
                 "[--clients N] [--faults KIND,...] [--quiet]\n  kinds of faults: all, none, %s\n",
                 "link cut node router client flip drop reset rpc twice disk clock");
    return 2;
  }
  return flags.count("--seeds") != 0 ? RunMany(flags) : RunOne(flags);
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) { return cistern::Main(argc, argv); }
