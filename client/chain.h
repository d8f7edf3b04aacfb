#pragma once

#include <vector>

#include "cistern/client.h"
#include "core/chain.h"
#include "core/ids.h"
#include "core/layout_spec.h"

namespace cistern {

// What a Chain shares between its copies. Immutable once made. Any thread.
struct Chain::Rep {
  Layout layout;
  LayoutSpec spec;
  LayoutId layout_id;
  ChainRoot root;
  std::vector<BlockKey> keys;
};

LayoutSpec ToSpec(const Layout& layout);

// Hashes `tokens` behind `prefix` (null: from the root). InvalidArgument names the field: the layout's, or
// extras[i]. secret, weights_epoch: of the cluster; part of every key.
Result<Chain> HashChain(const Layout& layout, const Chain::Rep* prefix, std::span<const uint32_t> tokens,
                        std::span<const ChainExtra> extras, const std::array<uint8_t, 32>& secret,
                        uint64_t weights_epoch);

}  // namespace cistern
