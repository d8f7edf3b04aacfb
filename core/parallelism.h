#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/layout/layout.h"
#include "core/part.h"

namespace cistern {

inline constexpr uint32_t kRanksMax = 4096;

// Which rank of an engine reads or writes, and what part of the model it has.
struct Parallelism {
  uint32_t tp = 1;  // Tensor-parallel ranks, and which one this is.
  uint32_t tp_rank = 0;
  uint32_t layer_first = 0;  // Pipeline stage: model layers [layer_first, layer_end); layer_end 0: all.
  uint32_t layer_end = 0;
  uint32_t dcp = 1;  // Decode and prefill context parallelism: above 1 refused by name.
  uint32_t pcp = 1;
};

// What one rank has of one group: whole slices and whole spans, never a piece of either.
struct GroupShare {
  uint16_t slice_first = 0;
  uint16_t slice_count = 0;
  uint16_t span_first = 0;
  uint16_t span_count = 0;  // 0: the stage has no layer of this group.
  uint16_t sharers = 1;     // Ranks that have exactly these slices ...
  uint16_t sharer = 0;      // ... and which of them this one is.
};

// The rank's share of each group of the layout. Slices go to ranks in equal shares; where there are more
// ranks than slices, ranks share one; groups whose bytes are the same on all ranks (replicated, or of one
// slice) are shared by all. FailedPrecondition beginning with "PARALLELISM" (docs/layouts/README.md), which
// readers answer with a clean miss: slices that ranks do not divide, a stage whose border is no border of a
// span, DCP or PCP above 1.
absl::StatusOr<std::vector<GroupShare>> ShareOf(const layout::Layout& layout, const Parallelism& who);
// All of every group: the whole reading group, or TP 1.
std::vector<GroupShare> WholeShare(const layout::Layout& layout);

// Of the ranks that have the same bytes one writes them; which one depends on the block, so that the work
// spreads.
inline bool IsWriter(const GroupShare& share, const BlockHash& block) {
  return share.sharers <= 1 || block.Prefix64() % share.sharers == share.sharer;
}
// Of the ranks of one host that want the same bytes one pulls them, and passes them on by the engine's own
// means. `local`: which of the host's `locals` sharers this is.
inline bool IsPuller(const BlockHash& block, uint32_t local, uint32_t locals) {
  return locals <= 1 || (block.Prefix64() >> 16) % locals == local;
}

// Parts as they are stored and sent. A part above kPartBytesMax is split into chunks of that size, the last
// one shorter; the chunk's number stands in the upper bits of the wire's span, which layouts leave free.
inline constexpr uint32_t kChunkShift = 6;  // Spans of a layout are below kSpansMax = 1 << 6.
inline constexpr uint32_t kChunksMax = 64;
struct StoredParts {
  std::vector<PartCoord> coords{};
  std::vector<uint32_t> bytes{};
  uint64_t TotalBytes() const;
};
// The stored parts of one group of a block (history), or of a tail at `length` tokens; appends to `out`.
// `scale` divides part sizes, for tests and replays on small machines; 1 is the real size.
void AppendParts(const layout::Layout& layout, uint32_t group, const GroupShare& share, uint64_t length,
                 uint32_t scale, StoredParts& out);
// All groups of one kind, in the order of the layout.
StoredParts HistoryParts(const layout::Layout& layout, const std::vector<GroupShare>& shares,
                         uint32_t scale = 1);
StoredParts TailParts(const layout::Layout& layout, const std::vector<GroupShare>& shares, uint64_t length,
                      uint32_t scale = 1);

bool IsTail(const layout::Group& group);
bool HasTails(const layout::Layout& layout);

}  // namespace cistern
