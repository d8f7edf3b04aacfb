#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/bench_run.h"
#include "core/bytes.h"

namespace cistern {

// Anonymous memory whose pages are all there: a bench must not measure page faults.
class PrefaultedMemory {
 public:
  explicit PrefaultedMemory(size_t bytes);  // data() is null when the machine has too little.
  ~PrefaultedMemory();
  PrefaultedMemory(const PrefaultedMemory&) = delete;
  PrefaultedMemory& operator=(const PrefaultedMemory&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Plain memcpy of random pieces of `size` bytes out of `from`, in turn into the pieces of [to, to +
// to_bytes). The memory outlives it.
BenchLimit MemcpyLimit(std::vector<ConstSegment> from, std::byte* to, size_t to_bytes, size_t size);
// The same the other way round: in turn from [from, from + from_bytes), to random pieces of `to`.
BenchLimit MemcpyScatterLimit(const std::byte* from, size_t from_bytes, std::byte* to, size_t to_bytes,
                              size_t size);

}  // namespace cistern
