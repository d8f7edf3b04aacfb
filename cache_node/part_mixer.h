#pragma once

#include <array>
#include <cstdint>

#include "core/bytes.h"
#include "core/ids.h"
#include "core/random.h"

namespace cistern {

// Mixes (hash, coord) into 64 bits under a secret of this process, so that no writer can aim at one place of
// an index.
class PartMixer {
 public:
  explicit PartMixer(Random& random) {
    for (uint64_t& word : secret_) word = random.Next() | 1;
  }
  uint64_t operator()(const BlockHash& hash, uint32_t coord) const {
    const uint8_t* bytes = hash.bytes.data();
    const uint64_t low = Fold(LoadLe<uint64_t>(bytes) ^ secret_[0], LoadLe<uint64_t>(bytes + 8) ^ secret_[1]);
    const uint64_t high =
        Fold(LoadLe<uint64_t>(bytes + 16) ^ secret_[2], LoadLe<uint64_t>(bytes + 24) ^ secret_[3]);
    return Fold(low ^ coord, high ^ secret_[1]);
  }

 private:
  // 64 x 64 -> 128 bits, folded: the mixing step of wyhash-like hashes.
  static uint64_t Fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  std::array<uint64_t, 4> secret_;
};

}  // namespace cistern
