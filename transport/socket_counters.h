#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transport/hello_check.h"

namespace cistern {

// What happened on one SocketTransport since its start.
struct SocketCounters : HelloCounters {
  uint64_t accepted = 0;
  uint64_t peers_refused = 0;      // Too many peers.
  uint64_t strangers_dropped = 0;  // Without a HELLO yet, for others that came.
  uint64_t uid_refused = 0;        // Unix peer of another user.
  uint64_t map_refused = 0;        // Went on without a map; the path says why.
  uint64_t ring_refused = 0;       // Mapped, but frames stay on the socket; the path says why.
  uint64_t stalled_sends = 0;
  uint64_t accept_errors = 0;
  uint64_t cancelled_requests = 0;
  uint64_t drained_bytes = 0;

  std::map<std::string, uint64_t> ToMap() const {
    return {{"socket_accepted_total", accepted},
            {"bad_frames_total", bad_frames},
            {"version_refused_total", version_refused},
            {"algorithm_refused_total", algorithm_refused},
            {"hello_refused_total", hello_refused},
            {"handshake_timeouts_total", handshake_timeouts},
            {"peers_refused_total", peers_refused},
            {"uid_refused_total", uid_refused},
            {"map_refused_total", map_refused},
            {"stalled_sends_total", stalled_sends},
            {"accept_errors_total", accept_errors},
            {"cancelled_requests_total", cancelled_requests},
            {"drained_bytes_total", drained_bytes},
            {"ring_refused_total", ring_refused},
            {"strangers_dropped_total", strangers_dropped}};
  }
};

}  // namespace cistern
