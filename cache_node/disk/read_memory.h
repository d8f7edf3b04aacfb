#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "cache_node/disk/record.h"
#include "core/bytes.h"

namespace cistern {

inline constexpr uint32_t kReadsMax = 32;              // Under way at once: half of what the disk takes.
inline constexpr uint32_t kReadUnitBytes = 64u << 10;  // Reads of 64 KiB parts take two, of 256 KiB five.
inline constexpr uint32_t kReadUnitsMax = 512;

// Lends pieces of the log's read memory, each as long as its read, so that many small parts are on their way
// where few large ones would be: six reads of 256 KiB do not keep an NVMe device busy. No two have the same
// byte (F09). Owner: whoever reads the log. Thread: the shard's. Lifetime: the memory outlives it.
class ReadMemory {
 public:
  // At most kReadUnitsMax units; what does not fill a unit is left out.
  explicit ReadMemory(Segment memory);

  // Null: kReadsMax are lent, or no place is long enough. Whoever asks again once something came back gets
  // one, as long as nobody else is served before.
  std::byte* Take(uint32_t bytes);
  // What Take gave, with the same size.
  void Give(const std::byte* piece, uint32_t bytes);
  uint32_t lent() const { return lent_; }
  // How many pieces of one size there can be at once.
  uint32_t RoomFor(uint32_t bytes) const;

 private:
  static uint32_t UnitsOf(uint32_t bytes) { return (bytes + kReadUnitBytes - 1) / kReadUnitBytes; }

  const Segment memory_;
  const uint32_t units_;
  std::bitset<kReadUnitsMax> taken_;
  uint32_t lent_ = 0;
};

}  // namespace cistern
