#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/core/client_types.h"
#include "core/group_layout.h"
#include "core/ids.h"
#include "core/layout_spec.h"
#include "core/part.h"
#include "core/random.h"

namespace cistern {

// The bytes of a part are a function of its key, so whoever holds some can tell whether they are right.
void FillPart(const BlockKey& block, PartCoord coord, std::byte* out, size_t bytes);
bool IsPart(const BlockKey& block, PartCoord coord, const std::byte* data, size_t bytes);

inline constexpr uint32_t kSimBlockTokens = 4;
inline constexpr uint32_t kSimAlignBlocks =
    2;  // Hits of the layout with tails are multiples of so many blocks.

struct SimLayout {
  LayoutId id;
  StoredParts parts;                          // Of a block's history.
  std::shared_ptr<const GroupLayout> groups;  // Null: one group, all parts of one size.
};

struct SimChain {
  size_t layout = 0;
  std::vector<BlockKey> blocks;
  // Leading blocks that some Store has reported visible while nothing could take them away again (calm runs).
  uint32_t visible = 0;
  // Boundaries, in blocks, whose whole tail was reported visible in such a run.
  std::vector<uint32_t> tails;
  // The deepest of them that the visible history reaches; 0: none.
  uint32_t TailVisible() const;
};

// The prompts of one run: chains that share prefixes, under three layouts: two of one group, one with tails.
// Immutable but `visible`.
class SimChains {
 public:
  SimChains(const std::array<uint8_t, 32>& namespace_secret, Random& random);

  // A chain none of the others shares a block with, for checks at the end.
  const SimChain& Fresh(size_t layout, Random& random);

  size_t size() const { return chains_.size(); }
  SimChain& chain(size_t index) { return *chains_[index]; }
  const SimLayout& layout(size_t index) const { return layouts_[index]; }
  size_t layouts() const { return layouts_.size(); }
  // All blocks of this chain and of every chain that shares a prefix with it know what was made visible.
  void MarkVisible(const SimChain& chain, uint32_t first, uint32_t count);
  void MarkTail(const SimChain& chain, uint32_t blocks);

 private:
  std::vector<BlockKey> Hash(size_t layout, const std::vector<uint32_t>& tokens) const;

  std::array<uint8_t, 32> secret_;
  std::vector<SimLayout> layouts_;
  std::vector<std::unique_ptr<SimChain>> chains_;
};

}  // namespace cistern
