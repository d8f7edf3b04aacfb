#include "core/copy_crc_vector.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/crc_fold.h"

#define CISTERN_TARGET __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))
#define CISTERN_LINE_OP CISTERN_TARGET __attribute__((always_inline)) inline

namespace cistern {
namespace {

using Line = __m256i;
constexpr size_t kLanes = 8;  // Independent accumulators: enough to hide the multiplier's latency.

CISTERN_LINE_OP Line LoadLine(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
CISTERN_LINE_OP void StoreLine(std::byte* to, Line line) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), line);
}
CISTERN_LINE_OP void StreamLine(std::byte* to, Line line) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), line);
}
CISTERN_LINE_OP Line XorLines(Line a, Line b) { return _mm256_xor_si256(a, b); }
CISTERN_LINE_OP Line FoldOnto(Line piece, Line fold, Line onto) {
  const __m256i early = _mm256_clmulepi64_epi128(piece, fold, 0x00);
  const __m256i late = _mm256_clmulepi64_epi128(piece, fold, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(early, late), onto);
}
CISTERN_LINE_OP Line Spread(const Fold& fold) {
  const auto early = static_cast<long long>(fold.early), late = static_cast<long long>(fold.late);
  return _mm256_set_epi64x(late, early, late, early);
}
CISTERN_LINE_OP Line FirstLine(uint32_t state) { return _mm256_set_epi64x(0, 0, 0, state); }

#include "core/copy_crc_fold.inc"

bool IsSupported() {
  // These also ask whether the operating system saves the wide registers.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

}  // namespace

const VectorCrc kAvx2Crc = {"avx2-vpclmul", IsSupported, Move<Store::kStreaming>, Move<Store::kCached>};

}  // namespace cistern

#else

namespace cistern {
const VectorCrc kAvx2Crc = {"avx2-vpclmul", [] { return false; }, nullptr, nullptr};
}  // namespace cistern

#endif
