#pragma once

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"
#include "core/ids.h"

namespace cistern {

inline constexpr size_t kDecisionsMax =
    4096;  // Requests remembered at once; beyond it the oldest is forgotten.
inline constexpr Nanos kDecisionLife = 30 * kSecond;

// How many tokens each request hits, said once for all its ranks (F50): the first rank's proposal counts,
// later ones are told it. Bounded in number and time; what is forgotten is decided anew. Owner: NodeShard.
// Thread: the shard's.
class DecisionTable {
 public:
  struct Decision {
    uint64_t tokens = 0;
    uint32_t asked = 0;  // Ranks that have proposed, this one among them.
  };
  // The decision of `request`, after this rank's proposal. A rank that asks twice counts twice.
  Decision Propose(const BlockHash& request, uint64_t tokens, Nanos now);
  // The same, without proposing; tokens 0 and asked 0 when nothing is remembered.
  Decision Peek(const BlockHash& request, Nanos now);
  size_t size() const { return rows_.size(); }

 private:
  struct Row {
    Decision decision;
    Nanos end = 0;
  };
  void Forget(Nanos now);

  absl::flat_hash_map<BlockHash, Row, BlockHashHasher> rows_;
  std::deque<BlockHash> order_;  // As they end: each lives equally long.
};

}  // namespace cistern
