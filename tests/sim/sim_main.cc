// cistern-sim: one simulated cluster with a readable history, to look into a seed that failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/sim_cluster.h"

int main(int argc, char** argv) {
  uint64_t seed = 1, steps = 0;
  bool quiet = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quiet") == 0) {
      quiet = true;
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      steps = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: cistern-sim [--seed N] [--steps N] [--quiet]\n");
      return 2;
    }
  }
  cistern::SimOptions options = cistern::DrawOptions(seed);
  if (steps != 0) options.steps = static_cast<uint32_t>(steps);
  std::function<void(const std::string&)> print;
  if (!quiet) print = [](const std::string& line) { std::puts(line.c_str()); };
  cistern::SimCluster cluster(options, print);
  const cistern::SimReport report = cluster.Run();
  for (const auto& [name, times] : report.marks) std::printf("mark %-32s %lu\n", name.c_str(), times);
  std::printf("seed %lu: %lu events, %lu turns, %.3f s simulated, digest %016lx\n", seed, report.events,
              report.turns, static_cast<double>(report.simulated) / 1e9, report.digest);
  if (!report.failure.empty()) {
    std::printf("FAILED: %s\n", report.failure.c_str());
    return 1;
  }
  return 0;
}
