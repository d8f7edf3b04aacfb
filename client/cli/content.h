#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cistern {

// Bytes that say which block they belong to and where in it they stand: word i of a block is a mix of its
// seed and i. Whoever knows the seed checks any byte; bytes of another block, another offset or an old
// version do not pass. Both directions run at memory speed (additions, shifts and xors only, so that any
// compiler makes vectors of them).
void FillContent(uint64_t seed, void* to, size_t bytes);

// Offset of the first wrong byte (at word granularity), or nothing when all are right.
std::optional<size_t> FindWrongByte(uint64_t seed, const void* data, size_t bytes);

// Spreads an id or a hash prefix over 64 bits, so that near ids do not give near contents.
uint64_t ContentSeed(uint64_t salt, uint64_t id);

}  // namespace cistern
