#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/eviction_policy.h"

namespace cistern {

// Learns online when blocks come back, and says what keeping one is worth.
//
// Blocks are watched from their last use on, in classes of equal history. Per class and age the model sums
// what came back and how long how much was watched, so a block that never returns counts as "not yet", not as
// "never". From these rates follows, for each age, the best ratio over all horizons of P(back within the
// horizon) to the expected time until the horizon or the return: expected hits per time that a slot is held
// (the Gittins index of a slot's use). What has the least goes first. Old counts fade, so the model follows
// the load.
//
// Three kinds: trunk (a later request branched off below it), last (end of a request's path, of a first turn
// or of a later one: an end is a leaf, and covers all of its path from eviction), body (the rest). A body's
// rate is that of its age times a factor each for the turn of its conversation, the length of its request and
// how much of that was new. Owned by CisternPolicy; one thread; allocates at construction.
class ReuseModel {
 public:
  static constexpr int kBins = 56;  // The last one begins at 2^27.5 ticks: 18 days.
  static constexpr int kTurns = 5, kLengths = 8, kNews = 8;
  static constexpr int kBodies = kTurns * kLengths * kNews;
  static constexpr int kTrunk = kBodies, kLast = kBodies + 1;  // kLast: of a first turn; then of later ones.
  static constexpr int kClasses = kBodies + 3;

  ReuseModel();

  // turn: counted from 0; 3 and 4 are one class, and all from 5 on. length, new_blocks: of the request, in
  // blocks.
  static int BodyClass(int turn, uint32_t length, uint32_t new_blocks);
  static int LastClass(int turn) { return turn == 0 ? kLast : kLast + 1; }
  static bool IsLast(int cls) { return cls >= kLast; }
  // First age, in ticks, that belongs to a bin: 0, 1, 2, 3, 4, 6, 8, 12, ... (steps of the square root of 2).
  static uint64_t BinStart(int bin);
  static int BinOf(PolicyTick age);

  // `weight` of a class begins its watch in a bin, or ends it; `at` may lie a little in the past.
  void Enter(int cls, int bin, PolicyTick at, float weight) {
    watched_[Cell(cls, bin)] += weight;
    time_[Cell(cls, bin)] -= weight * SinceUpdate(at);
  }
  void Leave(int cls, int bin, PolicyTick at, float weight) {
    watched_[Cell(cls, bin)] -= weight;
    time_[Cell(cls, bin)] += weight * SinceUpdate(at);
  }
  void CameBack(int cls, int bin, float weight);

  // Computes what Worth says anew; `keep` of all counts is kept, the rest forgotten.
  void Update(PolicyTick now, float keep, int sweeps);

  float Worth(int cls, PolicyTick age) const { return worth_[level_[cls]][BinOf(age)]; }
  uint64_t memory_bytes() const;

 private:
  // Bodies share tables of worth by the product of their factors: steps of 2^(1/4) from 1/16 to 16.
  static constexpr int kLevels = 33;
  static constexpr int kTrunkLevel = kLevels;  // Then those of the last.
  using Rates = std::array<float, kBins>;
  struct Factor {
    std::array<float, kLengths> value;
    std::array<float, kLengths> seen{};
    Factor() { value.fill(1); }
  };

  static int TableOf(int cls) { return cls < kBodies ? 0 : cls - kBodies + 1; }  // In returns_.
  static size_t Cell(int cls, int bin) { return static_cast<size_t>(cls) * kBins + static_cast<size_t>(bin); }
  float SinceUpdate(PolicyTick at) const { return static_cast<float>(static_cast<int32_t>(at - updated_)); }
  float ProductOf(int body) const;
  Rates RatesOf(const Rates& returns, const Rates& time) const;
  Rates BodyRates() const;
  void Sweep();
  void FillWorth(const Rates& rates, float factor, Rates& worth) const;
  void SetLevels();

  PolicyTick updated_ = 0;
  std::vector<float> watched_;      // Now, by class and bin.
  std::vector<float> time_;         // Weight x ticks under watch until `updated_`, fading.
  std::array<Rates, 4> returns_{};  // Of body, trunk, the two of last; fading.
  Factor turn_, length_, new_;
  Rates body_rates_{};
  std::array<Rates, kLevels + 3> worth_{};
  std::array<uint8_t, kClasses> level_{};
};

}  // namespace cistern
