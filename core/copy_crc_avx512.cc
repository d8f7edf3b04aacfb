#include "core/copy_crc_vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/crc_fold.h"

#define CISTERN_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))
#define CISTERN_LINE_OP CISTERN_TARGET __attribute__((always_inline)) inline

namespace cistern {
namespace {

using Line = __m512i;
constexpr size_t kLanes = 4;  // Independent accumulators: enough to hide the multiplier's latency.

CISTERN_LINE_OP Line LoadLine(const std::byte* from) { return _mm512_loadu_si512(from); }
CISTERN_LINE_OP void StoreLine(std::byte* to, Line line) { _mm512_storeu_si512(to, line); }
CISTERN_LINE_OP void StreamLine(std::byte* to, Line line) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
}
CISTERN_LINE_OP Line XorLines(Line a, Line b) { return _mm512_xor_si512(a, b); }
CISTERN_LINE_OP Line FoldOnto(Line piece, Line fold, Line onto) {
  const __m512i early = _mm512_clmulepi64_epi128(piece, fold, 0x00);
  const __m512i late = _mm512_clmulepi64_epi128(piece, fold, 0x11);
  return _mm512_ternarylogic_epi64(early, late, onto, 0x96);  // Three-way exclusive or.
}
CISTERN_LINE_OP Line Spread(const Fold& fold) {
  const auto early = static_cast<long long>(fold.early), late = static_cast<long long>(fold.late);
  return _mm512_set4_epi64(late, early, late, early);
}
CISTERN_LINE_OP Line FirstLine(uint32_t state) {
  return _mm512_maskz_mov_epi64(0x01, _mm512_castsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
}

#include "core/copy_crc_fold.inc"

bool IsSupported() {
  // These also ask whether the operating system saves the wide registers.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}

}  // namespace

const VectorCrc kAvx512Crc = {"avx512-vpclmul", IsSupported, Move<Store::kStreaming>, Move<Store::kCached>};

}  // namespace cistern

#else

namespace cistern {
const VectorCrc kAvx512Crc = {"avx512-vpclmul", [] { return false; }, nullptr, nullptr};
}  // namespace cistern

#endif
