#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The vector paths of CopyCrc32c; crc32c.cc chooses one, nobody else calls them but tests and benchmarks. (A
// checksum without a copy gains nothing by them: 21 GB/s like ISA-L, Zen 3, 4 KiB to 1 MiB in the cache.)
namespace cistern {

// Below this many bytes the copy uses ordinary stores: small parts are read at once by whoever asked for
// them, and find themselves in the cache. From here on streaming stores, which spare the read of each
// destination line and leave the cache to others. Zen 4 with AVX-512, cold source and destination, medians of
// crc32c_bench in ns (alone / and then read):
//   bytes    ordinary       streaming
//   4 KiB     856 /  957     810 / 1282
//   16 KiB   2352 / 2572    1898 / 3279
//   32 KiB   3596 / 4258    2908 / 4793
//   64 KiB   6294 / 7363    4717 / 7786
inline constexpr size_t kStreamingCopyBytesMin = 32u << 10;

// One instruction set's functions. Streaming stores are fenced before a function returns.
struct VectorCrc {
  using Copy = uint32_t (*)(void* to, const void* from, size_t bytes, uint32_t crc, const void* next);
  const char* name;
  bool (*is_supported)();  // Whether CPU and operating system have all it needs; the others only where true.
  Copy copy_streaming;
  Copy copy_cached;
};

extern const VectorCrc kAvx512Crc;  // AVX-512F, VL and VPCLMULQDQ: Ice Lake, Zen 4 and later.
extern const VectorCrc kAvx2Crc;    // AVX2 and VPCLMULQDQ: Zen 3, Alder Lake and later.

// Best first.
inline constexpr std::array<const VectorCrc*, 2> kVectorCrcs = {&kAvx512Crc, &kAvx2Crc};

}  // namespace cistern
