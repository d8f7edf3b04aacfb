#include "core/placement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/check.h"

namespace cistern {
namespace {

// Where the growing runs end: from here on every run has the cap's length.
constexpr uint32_t kGrowthEnd = 8;

// Blocks of the run that begins at `first`.
uint32_t RunLength(uint32_t first, uint32_t cap) {
  if (first < 2) return 1;
  if (first >= kGrowthEnd) return cap;
  return std::min<uint32_t>(first < 4 ? 2 : 4, cap);
}

// The finaliser of SplitMix64: every input bit reaches every output bit, so owners' scores are independent.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// -ln(u) / weight for the uniform u in (0, 1] that a draw stands for; the lowest wins. The minimum of
// exponential variables with rates w_i is variable i with probability w_i / sum(w), which is what a weight
// promises.
double Cost(uint64_t draw, double inv_weight) {
  const double u = static_cast<double>((draw >> 11) + 1) * 0x1p-53;
  return -std::log(u) * inv_weight;
}

}  // namespace

void CutRuns(uint32_t blocks, uint32_t cap, std::vector<Run>& out) {
  out.clear();
  cap = std::max<uint32_t>(cap, 1);
  for (uint32_t first = 0; first < blocks;) {
    const uint32_t count = std::min(RunLength(first, cap), blocks - first);
    out.push_back({first, count});
    first += count;
  }
}

uint32_t RunFirst(uint32_t index, uint32_t cap) {
  cap = std::max<uint32_t>(cap, 1);
  if (index < 2) return index;
  if (cap >= 4) {
    if (index < 4) return 2;
    if (index < kGrowthEnd) return 4;
    return kGrowthEnd + (index - kGrowthEnd) / cap * cap;
  }
  // A cap below 4 cuts the growth short: runs of `cap` begin at 2, or at 4 behind [2,3].
  if (cap == 3 && index < 4) return 2;
  const uint32_t steady = cap == 3 ? 4 : 2;
  return steady + (index - steady) / cap * cap;
}

Placement::Placement(const ClusterMap& map) : Placement(ActiveOwners(map)) {}

Placement::Placement(const OwnerSet& owners) : owners_(owners) {
  seeds_.reserve(owners_.owners.size());
  bool equal = true;
  for (const OwnerSet::Owner& owner : owners_.owners) {
    seeds_.push_back(XXH3_64bits(owner.id.data(), owner.id.size()));
    equal = equal && owner.weight == owners_.owners.front().weight;
  }
  if (equal) return;
  for (const OwnerSet::Owner& owner : owners_.owners) {
    // A weight that is no positive number never wins; ActiveOwners lets none through.
    inv_weight_.push_back(owner.weight > 0 ? 1 / owner.weight : HUGE_VAL);
  }
}

size_t Placement::Owner(const BlockHash& run_key) const {
  CISTERN_CHECK(!seeds_.empty());
  const uint64_t key = run_key.Prefix64();
  size_t best = 0;
  if (inv_weight_.empty()) {
    uint64_t best_draw = Mix(key ^ seeds_[0]);
    for (size_t i = 1; i < seeds_.size(); ++i) {
      const uint64_t draw = Mix(key ^ seeds_[i]);
      if (draw > best_draw) best_draw = draw, best = i;
    }
    return best;
  }
  double best_cost = Cost(Mix(key ^ seeds_[0]), inv_weight_[0]);
  for (size_t i = 1; i < seeds_.size(); ++i) {
    const double cost = Cost(Mix(key ^ seeds_[i]), inv_weight_[i]);
    if (cost < best_cost) best_cost = cost, best = i;
  }
  return best;
}

std::vector<size_t> Placement::TopK(const BlockHash& run_key, size_t k) const {
  const uint64_t key = run_key.Prefix64();
  std::vector<std::pair<double, size_t>> ranked(seeds_.size());
  for (size_t i = 0; i < seeds_.size(); ++i) {
    const uint64_t draw = Mix(key ^ seeds_[i]);
    // Equal weights rank by the whole draw, as Owner does: 64 bits do not fit a double without rounding.
    ranked[i] = {inv_weight_.empty() ? 0 : Cost(draw, inv_weight_[i]), i};
  }
  const auto before = [&](const std::pair<double, size_t>& a, const std::pair<double, size_t>& b) {
    if (a.first != b.first) return a.first < b.first;
    if (!inv_weight_.empty()) return a.second < b.second;
    const uint64_t draw_a = Mix(key ^ seeds_[a.second]);
    const uint64_t draw_b = Mix(key ^ seeds_[b.second]);
    return draw_a != draw_b ? draw_a > draw_b : a.second < b.second;
  };
  k = std::min(k, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(k), ranked.end(), before);
  std::vector<size_t> out(k);
  for (size_t i = 0; i < k; ++i) out[i] = ranked[i].second;
  return out;
}

}  // namespace cistern
