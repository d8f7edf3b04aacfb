#pragma once

#include <array>
#include <cstdint>

#include "core/part.h"

namespace cistern {

// What one client did, exactly. One thread (the core's).
struct ClientCounters {
  uint64_t lookup_blocks = 0;                             // Blocks asked for by Lookup, Plan and Fetch.
  uint64_t hit_blocks = 0;                                // Of these, leading blocks found ...
  uint64_t miss_blocks = 0;                               // ... and the rest.
  uint64_t load_bytes = 0;                                // Verified.
  uint64_t store_bytes = 0;                               // Visible.
  std::array<uint64_t, kPartResultMax + 1> load_pages{};  // By result.
  std::array<uint64_t, kPartResultMax + 1> store_pages{};
  uint64_t connects = 0;
  uint64_t connect_attempts = 0;
  uint64_t connect_failures = 0;
  uint64_t peers_lost = 0;
  uint64_t fences = 0;   // Peers cut because a call ended with bytes under way.
  uint64_t cancels = 0;  // Requests given up alone.
  uint64_t breaker_open = 0;
  uint64_t breaker_skips = 0;       // Requests not sent because a breaker was open.
  uint64_t negative_skips = 0;      // ... because the peer was found dead a moment ago.
  uint64_t peer_hints = 0;          // Nodes found dead that the router is to hear of ...
  uint64_t peer_hints_dropped = 0;  // ... and those beyond kGonePeersMax at a time.
  uint64_t pings = 0;
  uint64_t silent_peers = 0;    // Cut because nothing came for kSilentMax.
  uint64_t old_owner_asks = 0;  // Requests to owners of an older map.
  uint64_t renews = 0;
  uint64_t stale_plans = 0;   // Loads refused because the peer's connection or incarnation is another one.
  uint64_t bad_frames = 0;    // Replies that do not decode or do not fit their request.
  uint64_t late_replies = 0;  // Replies to requests that were given up.
  uint64_t single_flight_shared = 0;
  uint64_t share_parts = 0;  // Taken from another rank of this host, and verified ...
  uint64_t share_bytes = 0;
  uint64_t share_published = 0;     // ... and pulled here for others.
  uint64_t share_full = 0;          // Pulled here because the segment had no room, or was none ...
  uint64_t share_late = 0;          // ... the rank that was to bring it did not ...
  uint64_t share_gone = 0;          // ... it failed there, or was gone already ...
  uint64_t share_refused = 0;       // ... or what was there was not what the node told of.
  uint64_t notes = 0;               // NOTE frames sent.
  uint64_t window_put_bytes = 0;    // Stored out of the window without a copy by the client.
  uint64_t staged_put_bytes = 0;    // Copied into the window first.
  uint64_t inline_put_bytes = 0;    // Sent over the socket.
  uint64_t operations_refused = 0;  // kOperationsMax.
};

}  // namespace cistern
