#pragma once

#include <array>
#include <cstdint>

namespace cistern {

// Learns online when blocks come back, and says what keeping one is worth.
//
// Blocks are watched in groups of equal history (a class) from their last use on. Per class and age the model
// sums what came back and how long how much was watched, so a block that never returns counts as "not yet",
// not as "never", and blocks that are only remembered (ghosts) count like those that are here. From these
// rates follows, for each class and age, the best ratio over all horizons of P(back within the horizon) to
// the expected time until the horizon or the return: expected hits per time that a slot is held (the Gittins
// index of a slot's use). The one with the least goes first. Old counts fade, so the model follows the load.
// Time is counted in requests: independent of how fast they come. Owned by HazardPolicy; 8 KiB; one thread;
// allocates nothing.
class ReuseModel {
 public:
  static constexpr int kClasses = 4;
  static constexpr int kBins = 32;  // The last one begins at 49,152 requests.

  ReuseModel();

  // First age that belongs to a bin: 0, 1, 2, 3, 4, 6, 8, 12, ... (steps of about the square root of 2).
  static uint64_t BinStart(int bin);

  // `weight` of a class begins, ends or goes on to the next bin under watch.
  void Watch(int cls, int bin, double weight) { watched_[cls][bin] += weight; }
  void Unwatch(int cls, int bin, double weight) { watched_[cls][bin] -= weight; }
  // It came back: also the end of its watch.
  void CameBack(int cls, int bin, double weight) {
    watched_[cls][bin] -= weight;
    returns_[cls][bin] += weight;
  }
  // One request has passed.
  void Tick();
  double Worth(int cls, int bin) const { return worth_[cls][bin]; }

 private:
  using Table = std::array<std::array<double, kBins>, kClasses>;
  void Rebuild();

  uint64_t ticks_ = 0;
  Table watched_{};  // Now, by class and bin.
  Table returns_{};  // So far, fading.
  Table time_{};     // Weight x requests under watch, fading.
  Table worth_{};
};

}  // namespace cistern
