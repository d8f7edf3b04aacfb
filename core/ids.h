#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/bytes.h"

namespace cistern {

// N raw bytes with a meaning; the meaning is the tag.
template <size_t N, typename Tag>
struct FixedBytes {
  std::array<uint8_t, N> bytes{};
  friend bool operator==(const FixedBytes&, const FixedBytes&) = default;
  // clang-tidy 14 takes the 0 that an ordering is compared with inside for a null pointer.
  friend auto operator<=>(const FixedBytes&, const FixedBytes&) = default;  // NOLINT(modernize-use-nullptr)
  // The first 8 bytes as an integer: uniform, since the bytes come from SHA-256.
  uint64_t Prefix64() const { return LoadLe<uint64_t>(bytes.data()); }
};

// Names a block and everything before it (DESIGN §3).
using BlockHash = FixedBytes<32, struct BlockHashTag>;
// Names the bytes of a layout: the first 16 bytes of the SHA-256 of its canonical encoding.
using LayoutId = FixedBytes<16, struct LayoutIdTag>;
// Names a cluster; made once by `cistern up` or the first router.
using ClusterId = FixedBytes<16, struct ClusterIdTag>;

// What identifies a block in a lookup: the chain hash and a fingerprint of (tokens, extras) made with another
// hash. A hit needs both.
struct BlockKey {
  BlockHash hash;
  uint64_t fingerprint = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

struct BlockHashHasher {
  size_t operator()(const BlockHash& hash) const { return hash.Prefix64(); }
};

// Lower-case hex of all bytes, or of the first `bytes` for logs.
std::string ToHex(const uint8_t* data, size_t bytes);
template <size_t N, typename Tag>
std::string ToHex(const FixedBytes<N, Tag>& value, size_t bytes = N) {
  return ToHex(value.bytes.data(), bytes < N ? bytes : N);
}

}  // namespace cistern
