#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern {

// CRC-32C (Castagnoli), final form (init and final inversion included). crc of no bytes is 0.
// Extend continues: Crc32cExtend(Crc32c(a), b) == Crc32c(ab). ISA-L inside.
uint32_t Crc32cExtend(uint32_t crc, const void* data, size_t bytes);
inline uint32_t Crc32c(const void* data, size_t bytes) { return Crc32cExtend(0, data, bytes); }

// The checksum of a and then b, from those of both: pieces that were checked apart make one whole.
uint32_t Crc32cJoin(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b);

// Copies and checksums in one pass; returns Crc32cExtend(crc, from, bytes) of exactly the bytes that were
// stored, so a source that changes underneath cannot make the two disagree. AVX-512 or AVX2 with
// VPCLMULQDQ and streaming stores where the CPU has them (chosen once, at run time); ISA-L over the
// *destination* elsewhere.
// Ranges must not overlap. `next` is where the caller will read after this, if it knows: its beginning is
// asked of the memory while the end of this is copied. Only a hint, never read.
uint32_t CopyCrc32c(void* to, const void* from, size_t bytes, uint32_t crc = 0, const void* next = nullptr);

// The portable path of the above, for tests and benchmarks.
uint32_t CopyCrc32cPortable(void* to, const void* from, size_t bytes, uint32_t crc = 0,
                            const void* next = nullptr);
// "avx512-vpclmul", "avx2-vpclmul" or "isa-l".
const char* CopyCrc32cName();

}  // namespace cistern
