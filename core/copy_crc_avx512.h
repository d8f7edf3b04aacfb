#pragma once

#include <cstddef>
#include <cstdint>

// The AVX-512 path of CopyCrc32c; crc32c.cc chooses it, nobody else calls it but tests and benchmarks.
namespace cistern {

// Whether CPU and operating system have all it needs.
bool HasCopyCrc32cAvx512();

// Below this many bytes the copy uses ordinary stores: the reader finds the bytes in its cache. From here on
// streaming stores, which spare the read of each destination line and leave the cache to others. Measured,
// see crc32c_bench.cc.
inline constexpr size_t kStreamingCopyBytesMin = 32u << 10;

// Only where HasCopyCrc32cAvx512(). Streaming stores are fenced before it returns.
uint32_t CopyCrc32cAvx512(void* to, const void* from, size_t bytes, uint32_t crc);
// The same with the kind of store forced.
uint32_t CopyCrc32cAvx512Streaming(void* to, const void* from, size_t bytes, uint32_t crc);
uint32_t CopyCrc32cAvx512Cached(void* to, const void* from, size_t bytes, uint32_t crc);

}  // namespace cistern
