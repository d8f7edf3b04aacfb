#pragma once

#include <cstddef>
#include <cstdint>

// The AVX-512 path of CopyCrc32c; crc32c.cc chooses it, nobody else calls it but tests and benchmarks.
namespace cistern {

// Whether CPU and operating system have all it needs.
bool HasCopyCrc32cAvx512();

// Below this many bytes the copy uses ordinary stores: small parts are read at once by whoever asked for
// them, and find themselves in the cache. From here on streaming stores, which spare the read of each
// destination line and leave the cache to others. Zen 4, cold source and destination, medians of crc32c_bench
// in ns (alone / and then read):
//   bytes    ordinary       streaming
//   4 KiB     856 /  957     810 / 1282
//   16 KiB   2352 / 2572    1898 / 3279
//   32 KiB   3596 / 4258    2908 / 4793
//   64 KiB   6294 / 7363    4717 / 7786
inline constexpr size_t kStreamingCopyBytesMin = 32u << 10;

// Only where HasCopyCrc32cAvx512(). Streaming stores are fenced before it returns.
uint32_t CopyCrc32cAvx512(void* to, const void* from, size_t bytes, uint32_t crc);
// The same with the kind of store forced.
uint32_t CopyCrc32cAvx512Streaming(void* to, const void* from, size_t bytes, uint32_t crc);
uint32_t CopyCrc32cAvx512Cached(void* to, const void* from, size_t bytes, uint32_t crc);

}  // namespace cistern
