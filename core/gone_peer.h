#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cistern {

// One process of a node that somebody could not reach any more.
struct GonePeer {
  std::string node_id;
  uint64_t incarnation = 0;
  friend bool operator==(const GonePeer&, const GonePeer&) = default;
};
inline constexpr size_t kGonePeersMax = 64;  // Reported at a time.

// What a client or node tells the router of processes that it found dead (F32).
struct GoneReport {
  std::string ticket;           // Sealed.
  std::vector<GonePeer> peers;  // kGonePeersMax at most.
};

}  // namespace cistern
