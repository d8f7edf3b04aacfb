#include "client/cli/content.h"

#include <algorithm>
#include <cstring>

#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // Odd: words of one block repeat only after 2^64.
constexpr size_t kChunkWords = 512;             // Checked without a branch a word.

inline uint64_t Word(uint64_t counter) {
  counter ^= counter >> 31;
  return counter + (counter << 21);
}

// Word i has counter seed + i * kStep.
uint64_t Difference(uint64_t counter, const std::byte* data, size_t words) {
  uint64_t difference = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t got;
    std::memcpy(&got, data + i * 8, 8);
    difference |= got ^ Word(counter + i * kStep);
  }
  return difference;
}

}  // namespace

void FillContent(uint64_t seed, void* to, size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const size_t words = bytes / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = Word(seed + i * kStep);
    std::memcpy(out + i * 8, &word, 8);
  }
  if (const size_t rest = bytes % 8; rest != 0) {
    const uint64_t word = Word(seed + words * kStep);
    std::memcpy(out + words * 8, &word, rest);
  }
}

std::optional<size_t> FindWrongByte(uint64_t seed, const void* data, size_t bytes) {
  const auto* in = static_cast<const std::byte*>(data);
  const size_t words = bytes / 8;
  for (size_t first = 0; first < words; first += kChunkWords) {
    const size_t count = std::min(kChunkWords, words - first);
    if (Difference(seed + first * kStep, in + first * 8, count) == 0) continue;
    size_t at = first;
    while (Difference(seed + at * kStep, in + at * 8, 1) == 0) ++at;
    return at * 8;
  }
  if (const size_t rest = bytes % 8; rest != 0) {
    const uint64_t word = Word(seed + words * kStep);
    if (std::memcmp(in + words * 8, &word, rest) != 0) return words * 8;
  }
  return std::nullopt;
}

uint64_t ContentSeed(uint64_t salt, uint64_t id) { return Random(salt ^ Random(id).Next()).Next(); }

}  // namespace cistern
