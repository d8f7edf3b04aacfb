#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cistern {

static_assert(std::endian::native == std::endian::little,
              "frames and hashes are little-endian; add swaps here");

// Unaligned little-endian loads and stores.
template <typename T>
inline T LoadLe(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
inline void StoreLe(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// One piece of writable memory; a part lands in one or several of them, in order.
struct Segment {
  std::byte* data = nullptr;
  size_t bytes = 0;
};
// One piece of memory that is only read.
struct ConstSegment {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

}  // namespace cistern
