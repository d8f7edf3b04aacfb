#include "core/eviction/reuse_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cistern {
namespace {

// What a bin knows before anything was seen in it: a fifth of a return, at the rate of the bin before,
// falling with age. The fall is needed: with a fixed guess ages never seen look good, and large pools end
// below LRU.
constexpr float kPriorReturns = 0.2f;
constexpr float kPriorFall = 1.5f;
constexpr float kFirstRate = 1.f / (1 << 18);  // A tick; one return in 37 minutes.
constexpr float kFallFrom = 128;               // Ticks, about a second: below, all ages are alike.
constexpr float kFactorPrior = 16;  // Returns as expected that each factor has seen before the first.
constexpr int kLevelOne = 16;       // The level of a product of 1.
constexpr int kLevelsPerOctave = 4;

int Log2Class(uint32_t value, int classes) {
  return std::min(static_cast<int>(std::bit_width(std::max(value, 1u))) - 1, classes - 1);
}

float BinWidth(int bin) {
  const auto start = static_cast<float>(ReuseModel::BinStart(bin));
  if (bin + 1 == ReuseModel::kBins) return start * 0.41f;  // Open at its end; as wide as the step would be.
  return static_cast<float>(ReuseModel::BinStart(bin + 1)) - start;
}

float BinMiddle(int bin) { return static_cast<float>(ReuseModel::BinStart(bin)) + BinWidth(bin) / 2; }

struct Bins {
  std::array<float, ReuseModel::kBins> width, fall;
  Bins() {
    for (int b = 0; b < ReuseModel::kBins; ++b) {
      width[b] = BinWidth(b);
      const auto from = [](int bin) { return std::max(BinMiddle(bin), kFallFrom); };
      fall[b] = b == 0 ? 1 : std::pow(from(b) / from(b - 1), -kPriorFall);
    }
  }
};
const Bins& TheBins() {
  static const Bins bins;
  return bins;
}

}  // namespace

uint64_t ReuseModel::BinStart(int bin) {
  if (bin < 4) return static_cast<uint64_t>(bin);
  return bin % 2 == 0 ? uint64_t{1} << (bin / 2) : uint64_t{3} << ((bin - 3) / 2);
}

int ReuseModel::BinOf(PolicyTick age) {
  if (age < 4) return static_cast<int>(age);
  const int octave = static_cast<int>(std::bit_width(age)) - 1;
  return std::min(2 * octave + static_cast<int>(age >> (octave - 1) & 1), kBins - 1);
}

int ReuseModel::BodyClass(int turn, uint32_t length, uint32_t new_blocks) {
  static constexpr int kTurnClass[] = {0, 1, 2, 3, 3, 4};
  const int t = kTurnClass[std::clamp(turn, 0, 5)];
  return (t * kLengths + Log2Class(length, kLengths)) * kNews + Log2Class(new_blocks + 1, kNews);
}

ReuseModel::ReuseModel() : watched_(size_t{kClasses} * kBins), time_(size_t{kClasses} * kBins) {
  Update(0, 1, 1);
}

void ReuseModel::CameBack(int cls, int bin, float weight) {
  returns_[TableOf(cls)][bin] += weight;
  if (cls >= kBodies) return;
  turn_.seen[cls / (kLengths * kNews)] += weight;
  length_.seen[cls / kNews % kLengths] += weight;
  new_.seen[cls % kNews] += weight;
}

float ReuseModel::ProductOf(int body) const {
  return turn_.value[body / (kLengths * kNews)] * length_.value[body / kNews % kLengths] *
         new_.value[body % kNews];
}

ReuseModel::Rates ReuseModel::RatesOf(const Rates& returns, const Rates& time) const {
  Rates rates;
  float rate = kFirstRate;
  for (int b = 0; b < kBins; ++b) {
    const float prior = rate * TheBins().fall[b];
    rate = (std::max(0.f, returns[b]) + kPriorReturns) / (std::max(0.f, time[b]) + kPriorReturns / prior);
    rates[b] = rate;
  }
  return rates;
}

ReuseModel::Rates ReuseModel::BodyRates() const {
  Rates time{};
  for (int c = 0; c < kBodies; ++c) {
    const float product = ProductOf(c);
    for (int b = 0; b < kBins; ++b) time[b] += product * time_[Cell(c, b)];
  }
  return RatesOf(returns_[0], time);
}

// Rates for the factors there are, then each factor for the others.
void ReuseModel::Sweep() {
  body_rates_ = BodyRates();
  std::array<float, kBodies> plain{};  // Returns to expect of a body were all its factors 1.
  for (int c = 0; c < kBodies; ++c) {
    for (int b = 0; b < kBins; ++b) plain[c] += body_rates_[b] * time_[Cell(c, b)];
  }
  // As many in all as there were. The guess in RatesOf makes rates too low where returns set in late; the
  // factors, all too low then, would grow with every sweep until they are all the same at their bound.
  float seen = 0, expected_now = 0;
  for (const float count : returns_[0]) seen += std::max(0.f, count);
  for (int c = 0; c < kBodies; ++c) expected_now += std::max(0.f, plain[c]) * ProductOf(c);
  if (seen > 0 && expected_now > 0) {
    for (float& one : plain) one *= seen / expected_now;
  }
  const auto renew = [&](Factor& factor, auto part_of) {
    std::array<float, kLengths> expected{};
    for (int c = 0; c < kBodies; ++c) {
      expected[part_of(c)] += plain[c] * ProductOf(c) / factor.value[part_of(c)];
    }
    for (int v = 0; v < kLengths; ++v) {
      factor.value[v] = std::clamp(
          (factor.seen[v] + kFactorPrior) / (std::max(0.f, expected[v]) + kFactorPrior), 1.f / 64, 64.f);
    }
  };
  renew(turn_, [](int c) { return c / (kLengths * kNews); });
  renew(length_, [](int c) { return c / kNews % kLengths; });
  renew(new_, [](int c) { return c % kNews; });
}

// From the last bin to the first: a horizon is extended over the bins behind as long as that raises the
// ratio.
void ReuseModel::FillWorth(const Rates& rates, float factor, Rates& worth) const {
  struct Stretch {
    float back, time, stays;
  };
  std::array<Stretch, kBins> behind;
  int count = 0;
  for (int b = kBins - 1; b >= 0; --b) {
    const float rate = rates[b] * factor;
    const float back = -std::expm1(-rate * TheBins().width[b]);
    Stretch here{back, back / rate, 1 - back};
    while (count > 0 && behind[count - 1].back * here.time > here.back * behind[count - 1].time) {
      const Stretch& next = behind[--count];
      here = {here.back + here.stays * next.back, here.time + here.stays * next.time,
              here.stays * next.stays};
    }
    behind[count++] = here;
    worth[b] = here.back / here.time;
  }
}

void ReuseModel::SetLevels() {
  for (int c = 0; c < kBodies; ++c) {
    const float step = std::round(std::log2(ProductOf(c)) * kLevelsPerOctave);
    level_[c] = static_cast<uint8_t>(std::clamp(static_cast<int>(step) + kLevelOne, 0, kLevels - 1));
  }
  for (int c = kTrunk; c < kClasses; ++c) level_[c] = static_cast<uint8_t>(kTrunkLevel + c - kTrunk);
}

void ReuseModel::Update(PolicyTick now, float keep, int sweeps) {
  const float passed = SinceUpdate(now);
  for (size_t i = 0; i < time_.size(); ++i) time_[i] += watched_[i] * passed;
  updated_ = now;
  for (int i = 0; i < sweeps; ++i) Sweep();
  body_rates_ = BodyRates();
  for (int level = 0; level < kLevels; ++level) {
    FillWorth(body_rates_, std::exp2(static_cast<float>(level - kLevelOne) / kLevelsPerOctave),
              worth_[level]);
  }
  for (int cls = kTrunk; cls < kClasses; ++cls) {
    Rates time;
    for (int b = 0; b < kBins; ++b) time[b] = time_[Cell(cls, b)];
    FillWorth(RatesOf(returns_[TableOf(cls)], time), 1, worth_[kTrunkLevel + cls - kTrunk]);
  }
  SetLevels();
  for (float& time : time_) time *= keep;
  for (Rates& returns : returns_) {
    for (float& count : returns) count *= keep;
  }
  for (Factor* factor : {&turn_, &length_, &new_}) {
    for (float& count : factor->seen) count *= keep;
  }
}

uint64_t ReuseModel::memory_bytes() const {
  return sizeof(*this) + (watched_.size() + time_.size()) * sizeof(float);
}

}  // namespace cistern
