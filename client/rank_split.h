#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cistern/client.h"
#include "core/group_layout.h"
#include "core/ids.h"
#include "core/parallelism.h"

namespace cistern {

// Blocks that are written, or pulled, by one rank together: neighbours share round trips.
inline constexpr uint32_t kElectionBlocks = 16;

// What of a page one rank moves: some of its parts, in the page's order.
struct RankParts {
  StoredParts parts{};
  std::vector<std::pair<uint64_t, uint64_t>>
      ranges{};       // (offset in the page, bytes), joined where they touch.
  bool whole = true;  // All of the page.
};
// Blocks [first, first + count) of the chain, of which this rank moves the same parts.
struct RankPiece {
  uint32_t first = 0;
  uint32_t count = 0;
  RankParts mine{};
};

// Who writes and who pulls what several ranks hold alike (DESIGN §4): of a group that `sharers` ranks share,
// one is elected for each kElectionBlocks blocks, by the hash of their first. Pure.
class RankSplit {
 public:
  enum class For : uint8_t { kStore, kLoad };
  RankSplit(const GroupLayout& layout, const std::vector<GroupShare>& shares, const CallOptions& options,
            For what)
      : layout_(layout), shares_(shares), options_(options), what_(what) {}

  // The TP rank that moves this rank's share of a group, in the blocks that begin with this one.
  uint32_t RankOf(uint32_t group, const BlockHash& first) const;
  // Whether any group is shared at all; else there is nothing to split.
  bool IsShared() const;
  // Blocks [first, first + count), whole; pieces without parts are another rank's alone.
  std::vector<RankPiece> History(absl::Span<const BlockKey> chain, uint32_t first, uint32_t count) const;
  // The tail at `tokens`, behind its last block.
  RankParts Tail(const BlockHash& block, uint64_t tokens) const;

 private:
  RankParts Take(const std::vector<uint32_t>& groups, const BlockHash& first, uint64_t tokens) const;

  const GroupLayout& layout_;
  const std::vector<GroupShare>& shares_;
  const CallOptions& options_;
  const For what_;
};

// The page's memory at these ranges; a page that is too short ends early.
Page CutTo(const Page& page, const RankParts& parts);
ConstPage CutTo(const ConstPage& page, const RankParts& parts);

}  // namespace cistern
