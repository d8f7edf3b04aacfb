#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/arena.h"
#include "transport/transport.h"
#include "transport/unique_fd.h"

namespace cistern {

// The memfds a peer handed over, mapped read-only: what Pull reads on the `map` path.
// Owner: one peer's connection. Thread: the transport's. Unmaps and closes at destruction.
class PeerRegions {
 public:
  // Maps fds[i] as region infos[i]. InvalidArgument when numbers differ, an id comes twice, or a memfd is not
  // sealed; nothing is kept then and every descriptor is closed.
  absl::Status Map(const std::vector<RegionInfo>& infos, std::vector<UniqueFd> fds);

  // Copies [offset, offset + bytes) of a region to the target and checksums what it stored, then reads the
  // trailer: generation last, so that an unchanged generation vouches for everything read before. kInvalid,
  // with nothing copied, when a range is not wholly inside the region or the target has another size.
  PullResult Pull(const PullRequest& request) const;

  // As they are mapped here, in the order of Map.
  std::vector<ConstSegment> AsSegments() const;

  bool empty() const { return regions_.empty(); }
  size_t size() const { return regions_.size(); }

 private:
  struct Region {
    uint32_t id;
    MemoryRegion memory;
  };
  std::vector<Region> regions_;  // Few: searched in order.
};

}  // namespace cistern
