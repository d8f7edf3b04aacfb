#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ids.h"
#include "core/parallelism.h"

namespace cistern {

inline constexpr uint32_t kLayoutScaleMax = 4096;

// A layout of several groups as the data path sees it: which parts a block and a tail have, and which groups
// are looked for together. Immutable; any thread.
struct GroupLayout {
  // History groups that one request asks for: all that every hit needs, or one that has a rule of its own.
  struct HistorySet {
    StoredParts parts{};
    std::vector<uint32_t> groups{};
    uint32_t lookahead_tokens = 0;
    bool required = true;
  };

  layout::Layout layout{};
  LayoutId id{};
  uint32_t scale = 1;  // Parts have 1 / scale of their bytes, and the layout another id.
  std::vector<HistorySet> sets{};
  bool has_tails = false;

  uint32_t align_tokens() const {
    return layout.align_tokens == 0 ? layout.block_tokens : layout.align_tokens;
  }
  StoredParts TailAt(uint64_t tokens) const { return TailParts(layout, WholeShare(layout), tokens, scale); }
  uint64_t HistoryBlockBytes() const;
};

// layout: valid. scale: 1 to kLayoutScaleMax.
std::shared_ptr<const GroupLayout> MakeGroupLayout(layout::Layout layout, uint32_t scale = 1);

}  // namespace cistern
