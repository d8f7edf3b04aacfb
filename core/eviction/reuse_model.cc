#include "core/eviction/reuse_model.h"

#include <algorithm>
#include <cmath>

namespace cistern {
namespace {

constexpr uint64_t kRebuildTicks = 64;
constexpr uint64_t kWarmTicks = 512;  // Until then the tables change fast: rebuilt more often.
constexpr uint64_t kRebuildTicksWarm = 8;
constexpr double kKeep =
    0.99;  // Of all counts at each rebuild: half is forgotten after about 4,400 requests.
// What a bin knows before anything was seen in it: a fifth of a return, at the rate of the bin before,
// falling with age. The fall is needed: with a fixed guess, ages never seen look good, and large pools end
// below LRU.
constexpr double kPriorReturns = 0.2;
constexpr double kPriorFall = 1.5;
constexpr double kFirstRate = 0.125;

double BinWidth(int bin) {
  const double start = static_cast<double>(ReuseModel::BinStart(bin));
  if (bin + 1 == ReuseModel::kBins) return start * 0.41;  // Open at its end; as wide as the step would be.
  return static_cast<double>(ReuseModel::BinStart(bin + 1)) - start;
}

double BinMiddle(int bin) { return static_cast<double>(ReuseModel::BinStart(bin)) + BinWidth(bin) / 2; }

}  // namespace

uint64_t ReuseModel::BinStart(int bin) {
  if (bin < 4) return static_cast<uint64_t>(bin);
  return bin % 2 == 0 ? uint64_t{1} << (bin / 2) : uint64_t{3} << ((bin - 3) / 2);
}

ReuseModel::ReuseModel() { Rebuild(); }

void ReuseModel::Tick() {
  for (int c = 0; c < kClasses; ++c) {
    for (int b = 0; b < kBins; ++b) time_[c][b] += watched_[c][b];
  }
  ++ticks_;
  if (ticks_ % (ticks_ < kWarmTicks ? kRebuildTicksWarm : kRebuildTicks) == 0) Rebuild();
}

void ReuseModel::Rebuild() {
  for (int c = 0; c < kClasses; ++c) {
    std::array<double, kBins> back{};   // P(back in this bin, when not before).
    std::array<double, kBins> spent{};  // Expected time in it.
    double rate = kFirstRate;
    for (int b = 0; b < kBins; ++b) {
      const double prior = b == 0 ? rate : rate * std::pow(BinMiddle(b) / BinMiddle(b - 1), -kPriorFall);
      rate = (std::max(0.0, returns_[c][b]) + kPriorReturns) /
             (std::max(0.0, time_[c][b]) + kPriorReturns / prior);
      back[b] = 1 - std::exp(-rate * BinWidth(b));
      spent[b] = back[b] / rate;
    }
    for (int b = 0; b < kBins; ++b) {
      double stays = 1;
      double hits = 0;
      double time = 0;
      double best = 0;
      for (int horizon = b; horizon < kBins; ++horizon) {
        hits += stays * back[horizon];
        time += stays * spent[horizon];
        stays *= 1 - back[horizon];
        best = std::max(best, hits / time);
      }
      worth_[c][b] = best;
      returns_[c][b] *= kKeep;
      time_[c][b] *= kKeep;
    }
  }
}

}  // namespace cistern
