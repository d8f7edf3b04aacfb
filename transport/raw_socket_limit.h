#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace cistern {

// What a plain socket can move on this machine in the shape of a read: the figure beside which socket reads
// are shown. A child process answers an 8-byte request with batch x size bytes from random places of its
// arena; this process receives them into memory that has left the caches. Nothing is checked, found or
// verified: it is the limit, not a rival.
struct RawSocketLimit {
  enum class Family : uint8_t { kTcp, kUnix };  // Loopback TCP; a unix stream.

  size_t size = 64u << 10;
  size_t batch = 1;
  bool spin = true;  // Both sides spin on non-blocking calls; else both block.
  size_t arena_bytes = size_t{1} << 30;
  size_t destination_bytes = 256u << 20;
  double seconds = 1;
  Family family = Family::kTcp;
};
struct RawSocketResult {
  double gbps = 0;          // 10^9 bytes a second.
  double cpu_s_per_gb = 0;  // Both processes, without preparing.
};

// Measures for about limit.seconds, after preparing memory (a second or so). Thread: the caller's, which must
// have no other threads that hold locks a child needs (it forks); blocks. ResourceExhausted when there is too
// little memory.
absl::StatusOr<RawSocketResult> MeasureRawSocket(const RawSocketLimit& limit);

}  // namespace cistern
