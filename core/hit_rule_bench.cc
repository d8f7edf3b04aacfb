// A prompt of 2^20 tokens, two histories and four tails whose boundaries never all agree: the worst case.
#include <vector>

#include "benchmark/benchmark.h"
#include "core/hit_rule.h"

namespace cistern {
namespace {

void HitOfAMillionTokens(benchmark::State& state) {
  const auto block_tokens = static_cast<uint32_t>(state.range(0));
  const auto step = static_cast<uint32_t>(state.range(1));  // Blocks.
  const uint64_t blocks = (1u << 20) / block_tokens;
  std::vector<uint64_t> all(blocks / 64, UINT64_MAX), even(blocks / 64, 0x5555555555555555),
      odd(blocks / 64, 0xaaaaaaaaaaaaaaaa);
  std::vector<GroupPresence> groups(6);
  groups[0].blocks = all;
  groups[1].leading_blocks = blocks;
  for (size_t i = 2; i < 6; ++i) groups[i].tail = true;
  groups[2].tails = groups[3].tails = all;
  groups[4].tails = even;
  groups[5].tails = odd;
  const HitRule rule{
      .block_tokens = block_tokens, .align_tokens = step * block_tokens, .max_tokens = 1u << 20};
  std::vector<GroupLoad> loads;
  for (auto _ : state) benchmark::DoNotOptimize(DecideHit(rule, groups, loads));
}
BENCHMARK(HitOfAMillionTokens)->Args({16, 1})->Args({16, 3})->Args({256, 1})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cistern
