#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/arena.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/part.h"
#include "transport/transport.h"

namespace cistern {

inline constexpr size_t kShareBytesMax = size_t{16} << 30;  // Of one segment.
inline constexpr uint32_t kShareSizesMax = 4;               // Segments of one client: one a part size.
inline constexpr uint32_t kShareSlotsMax = 1u << 20;
inline constexpr uint32_t kShareWays = 8;  // Slots that one part may take.
// Nobody came for it meanwhile, or whoever was to bring it is dead: its slot may be taken.
inline constexpr Nanos kShareKeepMin = 50 * kMillisecond;
inline constexpr Nanos kShareClaimMax = 1 * kSecond;

// Parts that ranks of one engine on one host hand each other, so that each is pulled from its node once a
// host (docs/adr/0022): for each part size a segment of shared memory, slots of one part each. Whoever claims
// a part first pulls it and publishes what it has verified; others wait and take a copy. Nothing here is
// believed: takers check what they copied like bytes of any peer (verify.h), against what the node told them.
//
// A slot is one atomic word (phase, time, tag of the part) beside a trailer and the bytes. Every change of
// hands is one compare-and-swap of it, nobody waits for anybody, and a process may die between any two
// instructions: what it had claimed is free after kShareClaimMax. Segments are files under /dev/shm, each
// user holds a lock on them; the last to leave removes them, and those of who was killed go when the next
// one opens any.
//
// Owner: the facade. Thread: the core's (under the facade's lock). Outlives the core.
class HostShare {
 public:
  // `name` is what the ranks have in common, and nobody else; `bytes` of each segment. Removes segments that
  // nobody uses any more.
  HostShare(std::string name, size_t bytes, std::string folder = "/dev/shm");
  ~HostShare();
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;

  // A part in its slot, or on its way there.
  struct Place {
    uint32_t segment = 0;
    uint32_t slot = UINT32_MAX;  // UINT32_MAX: none.
    uint64_t word = 0;
    bool is_none() const { return slot == UINT32_MAX; }
  };
  enum class Claimed : uint8_t {
    kMine,    // Pull it, then Publish or Drop.
    kOthers,  // Look at it until it is there.
    kFull,    // No slot: pull it for yourself.
  };
  Claimed Claim(const BlockKey& block, PartCoord coord, uint32_t bytes, Nanos now, Place& place);
  // Verified bytes and what they were verified against.
  void Publish(const Place& place, const SlotTrailer& trailer, absl::Span<const Segment> bytes, Nanos now);
  void Drop(const Place& place);

  enum class State : uint8_t { kComing, kThere, kGone };
  State Look(Place& place) const;
  // A copy with its CRC, as a one-sided read has it. kStale: the slot became another part's meanwhile.
  PullResult Take(const Place& place, absl::Span<const Segment> target) const;

  // Segments that could not be had, and the last reason.
  uint64_t failures() const { return failures_; }
  const std::string& why() const { return why_; }

 private:
  struct Slot;
  struct Area;  // One segment.
  Area* SegmentOf(uint32_t part_bytes, uint32_t& index);
  bool Open(Area& segment);
  void RemoveStale() const;

  const std::string folder_, name_;
  const size_t bytes_;
  std::vector<std::unique_ptr<Area>> segments_;
  uint64_t failures_ = 0;
  std::string why_;
};

}  // namespace cistern
