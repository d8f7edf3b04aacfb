#include "core/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "core/copy_crc_vector.h"
#include "core/crc_fold.h"

namespace cistern {
namespace {

// The library takes the length as an int; larger buffers go in pieces.
constexpr size_t kIsalBytesMax = 1u << 30;
// Piece of the portable copy: still in L1 when the checksum reads it back. Measured on Zen 4 with cold 64 KiB
// and 1 MiB parts: 4 KiB is best (0.92 and 1.4 of memcpy), 32 KiB loses a tenth to a third of that, 2 KiB and
// less halve it.
constexpr size_t kPortablePieceBytes = 4u << 10;

// The best that this machine has; null: none.
const VectorCrc* Vector() {
  static const VectorCrc* const chosen = [] {
    for (const VectorCrc* vector : kVectorCrcs) {
      if (vector->is_supported()) return vector;
    }
    return static_cast<const VectorCrc*>(nullptr);
  }();
  return chosen;
}

// a * b mod P, reflected: bit 31 is x^0.
uint32_t MultiplyModP(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kCrc32cPolynomial : 0);
  }
  return product;
}

}  // namespace

uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t bytes) {
  // The library wants a non-const buffer that it only reads, and leaves both inversions to the caller.
  auto* at = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const size_t now = std::min(bytes, kIsalBytesMax);
    state = crc32_iscsi(at, static_cast<int>(now), state);
    at += now;
    bytes -= now;
  }
  return ~state;
}

uint32_t Crc32cJoin(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b) {
  // a is followed by 8 bytes_b more bits: it is multiplied by x to that power, by squaring.
  uint32_t shift = 0x80000000, square = 0x00800000;  // x^0, x^8.
  for (; bytes_b != 0; bytes_b >>= 1, square = MultiplyModP(square, square)) {
    if ((bytes_b & 1) != 0) shift = MultiplyModP(shift, square);
  }
  return MultiplyModP(crc_a, shift) ^ crc_b;
}

uint32_t CopyCrc32cPortable(void* to, const void* from, size_t bytes, uint32_t crc, const void* /*next*/) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const size_t now = std::min(bytes, kPortablePieceBytes);
    std::memcpy(out, in, now);
    crc = Crc32cExtend(crc, out, now);
    out += now;
    in += now;
    bytes -= now;
  }
  return crc;
}

uint32_t CopyCrc32c(void* to, const void* from, size_t bytes, uint32_t crc, const void* next) {
  const VectorCrc* vector = Vector();
  if (vector == nullptr) return CopyCrc32cPortable(to, from, bytes, crc);
  return (bytes >= kStreamingCopyBytesMin ? vector->copy_streaming : vector->copy_cached)(to, from, bytes,
                                                                                          crc, next);
}

const char* CopyCrc32cName() { return Vector() != nullptr ? Vector()->name : "isa-l"; }

}  // namespace cistern
