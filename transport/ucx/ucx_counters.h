#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transport/hello_check.h"

namespace cistern {

// What happened on one UcxTransport since its start.
struct UcxCounters : HelloCounters {
  uint64_t accepted = 0;
  uint64_t peers_refused = 0;
  uint64_t endpoint_errors = 0;  // Connections that UCX gave up.
  uint64_t forced_closes = 0;
  uint64_t one_sided_refused = 0;  // Went on without one-sided reads; the path says why.
  uint64_t gets = 0;
  uint64_t get_bytes = 0;
  uint64_t direct_get_bytes = 0;  // Of those: straight into registered memory.
  uint64_t bounce_waits = 0;      // Transfers that had to wait for a bounce buffer.
  uint64_t cancelled_requests = 0;
  uint64_t cancelled_pulls = 0;  // Given up without cutting the peer off.
  uint64_t orphans = 0;          // Operations that UCX did not end with their connection.

  std::map<std::string, uint64_t> ToMap() const {
    return {{"ucx_accepted_total", accepted},
            {"ucx_bad_frames_total", bad_frames},
            {"ucx_version_refused_total", version_refused},
            {"ucx_algorithm_refused_total", algorithm_refused},
            {"ucx_hello_refused_total", hello_refused},
            {"ucx_handshake_timeouts_total", handshake_timeouts},
            {"ucx_peers_refused_total", peers_refused},
            {"ucx_endpoint_errors_total", endpoint_errors},
            {"ucx_forced_closes_total", forced_closes},
            {"ucx_one_sided_refused_total", one_sided_refused},
            {"ucx_gets_total", gets},
            {"ucx_get_bytes_total", get_bytes},
            {"ucx_direct_get_bytes_total", direct_get_bytes},
            {"ucx_bounce_waits_total", bounce_waits},
            {"ucx_cancelled_requests_total", cancelled_requests},
            {"ucx_cancelled_pulls_total", cancelled_pulls},
            {"ucx_orphans_total", orphans}};
  }
};

}  // namespace cistern
