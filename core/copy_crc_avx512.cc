#include "core/copy_crc_avx512.h"

#include "core/check.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>

// Per function, not per file: an inline function of a header compiled here with wider instructions could
// otherwise be the copy that the linker keeps for everybody.
#define CISTERN_AVX512 __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))
#define CISTERN_AVX512_INLINE CISTERN_AVX512 __attribute__((always_inline)) inline

namespace cistern {
namespace {

// How it works: a message is a polynomial over GF(2), earlier bits with higher powers of x, and its CRC is
// the remainder by P. A 128-bit piece A that stands D bits before another piece B can be moved onto it, since
// A * x^D + B and (A * x^D mod P) + B have the same remainder. Its two halves lie 64 bits apart, so the early
// one takes x^(D+64) mod P and the late one x^D mod P. A 32-bit factor in the low half of a reflected 64-bit
// register stands for itself times x^32, hence the powers D+32 and D-32 below. So all data is folded at
// memory speed into 64 bytes, and these are divided as usual.

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, bit-reflected: bit 31 is x^0.
constexpr size_t kLineBytes = 64;
constexpr size_t kLanes = 4;  // Independent accumulators: enough to hide the multiplier's latency.
constexpr size_t kStepBytes = kLanes * kLineBytes;
// How far the reads of a streaming copy run ahead. 512 to 4096 measure alike, none at all a tenth slower;
// asking for the first lines in a burst, or for destination pages, gained nothing that stood out of the
// noise.
constexpr size_t kPrefetchBytes = 1024;

// x^power mod P, reflected. The shift makes up for the product of two reflected numbers being one bit short.
constexpr uint64_t PowerOfX(unsigned power) {
  uint32_t value = 0x80000000;
  for (; power > 0; --power) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
  return uint64_t{value} << 1;
}

// What moves a 128-bit piece by so many bytes: `early` is for its half with the earlier bytes.
struct Fold {
  uint64_t early, late;
};
constexpr Fold FoldBy(unsigned bytes) { return {PowerOfX(bytes * 8 + 32), PowerOfX(bytes * 8 - 32)}; }
constexpr Fold kFoldStep = FoldBy(kStepBytes);
constexpr Fold kFoldLine = FoldBy(kLineBytes);

CISTERN_AVX512_INLINE __m512i Spread(const Fold& fold) {
  const auto early = static_cast<long long>(fold.early), late = static_cast<long long>(fold.late);
  return _mm512_set4_epi64(late, early, late, early);
}

CISTERN_AVX512_INLINE __m512i FoldOnto(__m512i piece, __m512i fold, __m512i onto) {
  const __m512i early = _mm512_clmulepi64_epi128(piece, fold, 0x00);
  const __m512i late = _mm512_clmulepi64_epi128(piece, fold, 0x11);
  return _mm512_ternarylogic_epi64(early, late, onto, 0x96);  // Three-way exclusive or.
}

// Loads once: what is stored is what is checksummed, even while somebody else writes the source. The empty
// statement keeps the compiler from reading the memory a second time instead of keeping the register.
CISTERN_AVX512_INLINE __m512i LoadOnce(const std::byte* from) {
  __m512i line = _mm512_loadu_si512(from);
  asm volatile("" : "+v"(line));
  return line;
}

template <bool kStreaming>
CISTERN_AVX512_INLINE __m512i MoveLine(std::byte* to, const std::byte* from) {
  const __m512i line = LoadOnce(from);
  if constexpr (kStreaming) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_storeu_si512(to, line);
  }
  return line;
}

// 64 folded bytes -> the raw CRC state. Eight dependent steps cost no more than two more folds would.
CISTERN_AVX512_INLINE uint32_t Reduce(__m512i sum) {
  alignas(kLineBytes) std::array<uint64_t, kLineBytes / sizeof(uint64_t)> words;
  _mm512_store_si512(words.data(), sum);
  uint64_t state = 0;
  for (const uint64_t word : words) state = _mm_crc32_u64(state, word);
  return static_cast<uint32_t>(state);
}

// Fewer than 64 bytes.
CISTERN_AVX512_INLINE uint32_t MoveBytes(std::byte* to, const std::byte* from, size_t bytes, uint32_t state) {
  uint64_t wide = state;
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) {
    uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    asm volatile("" : "+r"(word));
    std::memcpy(to, &word, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes, ++to, ++from) {
    auto byte = static_cast<uint8_t>(*from);
    asm volatile("" : "+r"(byte));
    *to = std::byte{byte};
    narrow = _mm_crc32_u8(narrow, byte);
  }
  return narrow;
}

// Whole lines, at least one. The reads of the next lines are asked for ahead, also over page borders, where
// the hardware's own prefetcher stops.
template <bool kStreaming>
CISTERN_AVX512_INLINE uint32_t MoveLines(std::byte* to, const std::byte* from, size_t lines, uint32_t state) {
  const __m512i before = _mm512_castsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
  const __m512i first = _mm512_maskz_mov_epi64(0x01, before);
  __m512i sum;
  if (lines >= kLanes) {
    __m512i a = _mm512_xor_si512(MoveLine<kStreaming>(to, from), first);
    __m512i b = MoveLine<kStreaming>(to + 64, from + 64);
    __m512i c = MoveLine<kStreaming>(to + 128, from + 128);
    __m512i d = MoveLine<kStreaming>(to + 192, from + 192);
    const __m512i step = Spread(kFoldStep);
    for (to += kStepBytes, from += kStepBytes, lines -= kLanes; lines >= kLanes;
         to += kStepBytes, from += kStepBytes, lines -= kLanes) {
      if constexpr (kStreaming) {
        for (size_t i = 0; i < kStepBytes; i += kLineBytes)
          _mm_prefetch(from + kPrefetchBytes + i, _MM_HINT_T0);
      }
      a = FoldOnto(a, step, MoveLine<kStreaming>(to, from));
      b = FoldOnto(b, step, MoveLine<kStreaming>(to + 64, from + 64));
      c = FoldOnto(c, step, MoveLine<kStreaming>(to + 128, from + 128));
      d = FoldOnto(d, step, MoveLine<kStreaming>(to + 192, from + 192));
    }
    const __m512i line = Spread(kFoldLine);
    sum = FoldOnto(FoldOnto(FoldOnto(a, line, b), line, c), line, d);
  } else {
    sum = _mm512_xor_si512(MoveLine<kStreaming>(to, from), first);
    to += kLineBytes, from += kLineBytes, --lines;
  }
  const __m512i line = Spread(kFoldLine);
  for (; lines > 0; --lines, to += kLineBytes, from += kLineBytes) {
    sum = FoldOnto(sum, line, MoveLine<kStreaming>(to, from));
  }
  return Reduce(sum);
}

template <bool kStreaming>
CISTERN_AVX512 uint32_t Copy(void* to_any, const void* from_any, size_t bytes, uint32_t crc) {
  auto* to = static_cast<std::byte*>(to_any);
  const auto* from = static_cast<const std::byte*>(from_any);
  uint32_t state = ~crc;
  if constexpr (kStreaming) {
    // Streaming stores write whole aligned lines.
    const size_t ahead = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
    const size_t head = ahead < bytes ? ahead : bytes;
    state = MoveBytes(to, from, head, state);
    to += head, from += head, bytes -= head;
  }
  const size_t lines = bytes / kLineBytes;
  if (lines > 0) state = MoveLines<kStreaming>(to, from, lines, state);
  const size_t done = lines * kLineBytes;
  state = MoveBytes(to + done, from + done, bytes - done, state);
  // Streaming stores are ordered with nothing: whoever is told of these bytes must see them.
  if constexpr (kStreaming) _mm_sfence();
  return ~state;
}

}  // namespace

bool HasCopyCrc32cAvx512() {
  // These also ask whether the operating system saves the wide registers.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}

uint32_t CopyCrc32cAvx512Streaming(void* to, const void* from, size_t bytes, uint32_t crc) {
  return Copy<true>(to, from, bytes, crc);
}
uint32_t CopyCrc32cAvx512Cached(void* to, const void* from, size_t bytes, uint32_t crc) {
  return Copy<false>(to, from, bytes, crc);
}
uint32_t CopyCrc32cAvx512(void* to, const void* from, size_t bytes, uint32_t crc) {
  return bytes >= kStreamingCopyBytesMin ? Copy<true>(to, from, bytes, crc)
                                         : Copy<false>(to, from, bytes, crc);
}

}  // namespace cistern

#else

namespace cistern {

bool HasCopyCrc32cAvx512() { return false; }
// Never chosen on this architecture.
uint32_t CopyCrc32cAvx512(void*, const void*, size_t, uint32_t) {
  CISTERN_CHECK(false);
  return 0;
}
uint32_t CopyCrc32cAvx512Streaming(void* to, const void* from, size_t bytes, uint32_t crc) {
  return CopyCrc32cAvx512(to, from, bytes, crc);
}
uint32_t CopyCrc32cAvx512Cached(void* to, const void* from, size_t bytes, uint32_t crc) {
  return CopyCrc32cAvx512(to, from, bytes, crc);
}

}  // namespace cistern

#endif
