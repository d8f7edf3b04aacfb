#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/frame.h"
#include "transport/messages.h"

namespace cistern {

// What ends a connection at its beginning, on every path.
struct HelloCounters {
  uint64_t bad_frames = 0;         // Connections closed for a frame that breaks a limit or a checksum.
  uint64_t version_refused = 0;    // Wire versions do not meet.
  uint64_t algorithm_refused = 0;  // Another key algorithm.
  uint64_t hello_refused = 0;      // The handler said no (ticket).
  uint64_t handshake_timeouts = 0;
};

// Decodes a HELLO whose versions and key algorithm are spoken here; a refusal names both sides' values and is
// counted (F61).
absl::Status CheckHello(const FrameHeader& header, ByteView body, Hello& hello, HelloCounters& counters);

}  // namespace cistern
