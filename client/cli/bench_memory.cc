#include "client/cli/bench_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/random.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20;      // Order of the pieces; printed figures do not depend on it.
constexpr size_t kCheckEvery = 16;  // Copies between two looks at the clock, for small pieces.

// Repeats copy() for about `seconds`; returns 10^9 bytes a second.
template <typename Copy>
double Rate(double seconds, size_t size, Copy copy) {
  using SteadyClock = std::chrono::steady_clock;
  const size_t between = std::clamp<size_t>((size_t{1} << 20) / size, 1, kCheckEvery);
  const auto begin = SteadyClock::now();
  double took = 0;
  uint64_t copies = 0;
  while (took < seconds) {
    for (size_t i = 0; i < between; ++i) copy();
    copies += between;
    took = std::chrono::duration<double>(SteadyClock::now() - begin).count();
  }
  return static_cast<double>(copies) * static_cast<double>(size) / took / 1e9;
}

}  // namespace

PrefaultedMemory::PrefaultedMemory(size_t bytes) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(memory);
  madvise(data_, bytes_, MADV_DONTFORK);  // A child of ours must not turn its pages into copies.
  std::memset(data_, 1, bytes_);
}

PrefaultedMemory::~PrefaultedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

BenchLimit MemcpyLimit(std::vector<ConstSegment> from, std::byte* to, size_t to_bytes, size_t size) {
  std::erase_if(from, [size](const ConstSegment& segment) { return segment.bytes < size; });
  if (from.empty() || to_bytes < size) return {};
  auto slice = [from = std::move(from), to, to_bytes, size, random = Random(kSeed),
                at = size_t{0}](double seconds) mutable {
    return Rate(seconds, size, [&] {
      const ConstSegment& segment = from[random.Below(from.size())];
      std::memcpy(to + at, segment.data + random.Below(segment.bytes / size) * size, size);
      at = at + 2 * size <= to_bytes ? at + size : 0;
    });
  };
  return {"memcpy", slice};
}

BenchLimit MemcpyScatterLimit(const std::byte* from, size_t from_bytes, std::byte* to, size_t to_bytes,
                              size_t size) {
  if (from_bytes < size || to_bytes < size) return {};
  auto slice = [=, random = Random(kSeed), at = size_t{0}](double seconds) mutable {
    return Rate(seconds, size, [&] {
      std::memcpy(to + random.Below(to_bytes / size) * size, from + at, size);
      at = at + 2 * size <= from_bytes ? at + size : 0;
    });
  };
  return {"memcpy", slice};
}

}  // namespace cistern
