#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "core/bytes.h"

namespace cistern {

template <typename S>
size_t TotalBytes(absl::Span<const S> segments) {
  size_t total = 0;
  for (const S& s : segments) total += s.bytes;
  return total;
}

// Appends bytes [offset, offset + bytes) of a segment list to `out`. The caller has checked that they are
// there.
template <typename S>
void AppendSlice(absl::Span<const S> segments, size_t offset, size_t bytes, std::vector<S>& out) {
  for (const S& s : segments) {
    if (bytes == 0) return;
    if (offset >= s.bytes) {
      offset -= s.bytes;
      continue;
    }
    const size_t take = s.bytes - offset < bytes ? s.bytes - offset : bytes;
    out.push_back({s.data + offset, take});
    bytes -= take;
    offset = 0;
  }
}

}  // namespace cistern
