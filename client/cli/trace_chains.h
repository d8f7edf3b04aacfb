#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cistern/client.h"
#include "client/chain.h"
#include "core/chain.h"
#include "core/trace_reader.h"

namespace cistern {

// Chains of trace requests. An id names its block and all before it, so a block that was hashed once need not
// be hashed again: a request of thousands of known blocks costs one table look-up each. An id that comes back
// behind another parent, which no sound trace has, is hashed afresh and so becomes another block. Owner:
// ClientTarget; one thread.
class TraceChains {
 public:
  // root: of any chain of this layout that the client made; carries the namespace's secret.
  explicit TraceChains(const Chain& sample);
  Chain Make(const TraceRequest& request);
  size_t hashed_blocks() const { return hashed_; }  // For tests: how many were not known.

 private:
  struct Known {
    uint64_t parent = 0;
    BlockKey key;
  };
  BlockKey Hash(uint64_t id, const BlockKey* previous);

  const Chain::Rep& sample_;
  const Chain keep_;  // Holds sample_.
  ChainHasher hasher_;
  absl::flat_hash_map<uint64_t, Known> known_;
  std::vector<uint32_t> tokens_;
  size_t hashed_ = 0;
};

}  // namespace cistern
