#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "core/ids.h"

namespace cistern {

inline constexpr uint32_t kPartBytesMin = 1;         // Smallest part a node stores.
inline constexpr uint32_t kPartBytesMax = 4u << 20;  // Larger parts are refused with TOO_LARGE.

// Which part of a block: group, slice (head range) and span (layer range) of the layout, packed into 32 bits
// on the wire.
struct PartCoord {
  uint8_t group = 0;
  uint16_t slice = 0;  // < 4096
  uint16_t span = 0;   // < 4096
  uint32_t Packed() const { return uint32_t{group} << 24 | uint32_t{slice} << 12 | span; }
  static PartCoord Unpack(uint32_t v) {
    return {static_cast<uint8_t>(v >> 24), static_cast<uint16_t>((v >> 12) & 0xfff),
            static_cast<uint16_t>(v & 0xfff)};
  }
  friend bool operator==(const PartCoord&, const PartCoord&) = default;
};

// The outcome for one part. Values are on the wire: never renumber, only append.
enum class PartResult : uint8_t {
  kOk = 0,
  kMiss = 1,          // Not here.
  kLayout = 2,        // Here under another layout, length or geometry.
  kStale = 3,         // Of another incarnation or generation.
  kLeaseExpired = 4,  // Bytes arrived after the lease ended; whatever they are, they do not count.
  kCorrupt = 5,       // Checksum, key or fingerprint disagree.
  kNoSpace = 6,       // Arena full and nothing may be evicted.
  kBusy = 7,          // A bounded queue or table is full; back off.
  kTooLarge = 8,      // Above kPartBytesMax.
  kExists = 9,        // First writer won; not an error.
  kDenied = 10,       // Ticket lacks the right.
  kDeadline = 11,     // The caller's time ran out.
  kPeerGone = 12,     // Connection lost, or no connection.
  kCancelled = 13,    // The caller's wish.
  kInvalid = 14,      // The request breaks a documented limit.
  kWrongShard = 15,   // Map out of date: ask the shard that owns the run.
  kBreakerOpen = 16,  // Peer skipped because it failed often; not asked.
};
inline constexpr uint8_t kPartResultMax = 16;

// Upper-case name as in DESIGN §5 ("OK", "MISS", "LEASE_EXPIRED", ...).
std::string_view PartResultName(PartResult result);
// True when an engine treats it as a plain miss (recompute), which is all but kOk and kExists.
bool CountsAsMiss(PartResult result);
absl::StatusCode PartResultCode(PartResult result);

// Everything needed to address one stored part.
struct PartKey {
  BlockKey block;
  PartCoord coord;
  friend bool operator==(const PartKey&, const PartKey&) = default;
};

}  // namespace cistern
