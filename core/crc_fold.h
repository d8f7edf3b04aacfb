#pragma once

#include <cstdint>

// The constants by which CRC-32C folds a piece of the message onto a later one (copy_crc_fold.inc says how).
namespace cistern {

inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;  // Castagnoli, bit-reflected: bit 31 is x^0.

// x^power mod P, reflected. The shift makes up for the product of two reflected numbers being one bit short.
constexpr uint64_t Crc32cPowerOfX(unsigned power) {
  uint32_t value = 0x80000000;
  for (; power > 0; --power) value = (value >> 1) ^ ((value & 1) != 0 ? kCrc32cPolynomial : 0);
  return uint64_t{value} << 1;
}

// What moves a 128-bit piece by so many bytes: `early` is for its half with the earlier bytes.
struct Fold {
  uint64_t early, late;
};
constexpr Fold FoldBy(unsigned bytes) {
  return {Crc32cPowerOfX(bytes * 8 + 32), Crc32cPowerOfX(bytes * 8 - 32)};
}

}  // namespace cistern
