// eviction_bench TRACE [POLICY ...]: prefix-consistent hit ratios at the usual pool sizes, and what a policy
// costs a block.
#include <chrono>
#include <cstdio>

#include "core/eviction/replay.h"
#include "core/testing/traces.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: eviction_bench TRACE [POLICY ...]\n");
    return 2;
  }
  const cistern::ReplayTrace trace = cistern::ReadReplayTrace(argv[1]);
  if (trace.requests.empty()) {
    std::fprintf(stderr, "%s: cannot be read whole\n", argv[1]);
    return 2;
  }
  const std::vector<std::string> named(argv + 2, argv + argc);
  const std::vector<std::string> policies =
      named.empty() ? std::vector<std::string>(cistern::kNodePolicies.begin(), cistern::kNodePolicies.end())
                    : named;
  std::printf("%-12s %8s %8s %8s %8s %8s %8s   ns/block stranding\n", "policy", "1%", "2%", "5%", "10%",
              "20%", "50%");
  for (const std::string& policy : policies) {
    for (const auto flow : {cistern::ReplayFlow::kPlain, cistern::ReplayFlow::kNode}) {
      std::printf("%-8s %-5s", policy.c_str(), flow == cistern::ReplayFlow::kNode ? "node" : "plain");
      double seconds = 0;
      uint64_t blocks = 0;
      uint64_t stranding = 0;
      for (const double share : {.01, .02, .05, .1, .2, .5}) {
        const auto begin = std::chrono::steady_clock::now();
        const auto score =
            cistern::ReplayPolicy(policy, trace, static_cast<uint32_t>(trace.unique * share), flow);
        if (!score.ok()) {
          std::fprintf(stderr, "%s\n", std::string(score.status().message()).c_str());
          return 2;
        }
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        blocks += score->blocks;
        stranding += score->stranding_evictions;
        std::printf(" %8.4f", score->HitRatio());
      }
      std::printf("   %8.0f %9llu\n", seconds / static_cast<double>(blocks) * 1e9,
                  static_cast<unsigned long long>(stranding));
    }
  }
  return 0;
}
